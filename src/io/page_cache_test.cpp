#include "io/page_cache.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <unistd.h>

#include <filesystem>

#include "base/huge_pages.h"
#include "base/owned_context.h"
#include "support/test_files.h"

namespace motley {
namespace {

constexpr int64_t kFileBytes = int64_t{16} << 20;

std::byte expected_byte(int64_t offset) {
  return static_cast<std::byte>(offset / 4096 * 7 + offset % 251);
}

// Written page by page from the end, so that the page cache gets small pages.
void write_scattered(const std::string& path) {
  const Descriptor file(::open(path.c_str(), O_CREAT | O_WRONLY, 0600));
  ASSERT_TRUE(file.is_open());
  std::vector<std::byte> page(4096);
  for (int64_t at = kFileBytes - 4096; at >= 0; at -= 4096) {
    for (int64_t i = 0; i < 4096; ++i) page[static_cast<size_t>(i)] = expected_byte(at + i);
    ASSERT_EQ(pwrite(file.get(), page.data(), page.size(), at), 4096);
  }
  ASSERT_EQ(fsync(file.get()), 0);  // dirty pages cannot leave the cache
}

class PageCacheTest : public ::testing::Test {
 protected:
  void SetUp() override {
    write_scattered(directory_ / "shard");
    auto file = File::open(context_.faults(), directory_ / "shard");
    ASSERT_TRUE(file.is_ok());
    auto mapped = MappedFile::map(context_.faults(), std::move(*file));
    ASSERT_TRUE(mapped.is_ok());
    shards_.push_back(std::move(*mapped));
    ASSERT_TRUE(populate(context_.get(), {shards_[0].bytes()}, {}).is_ok());
  }
  Result<int64_t> widen(WidenOptions options) {
    return widen_page_cache(context_.get(), shards_, {shards_[0].bytes()}, options);
  }

  TemporaryDirectory directory_;
  OwnedContext context_{test_threads()};
  std::vector<MappedFile> shards_;
};

TEST_F(PageCacheTest, ReadsAgainOnlyForHugePagesAndChangesNoByte) {
  int64_t reported = 0;
  const auto bytes =
      widen({.progress = [&](int64_t done, int64_t) { reported = done; }, .worthwhile_bytes = 1});
  ASSERT_TRUE(bytes.is_ok()) << bytes.status().message();
  if (*bytes > 0) {
    EXPECT_EQ(*bytes, kFileBytes);
    EXPECT_EQ(reported, kFileBytes);
    EXPECT_GT(huge_mapped_bytes(shards_[0].bytes()), 0u);
  }
  for (int64_t at = 0; at < kFileBytes; at += 1021) {
    ASSERT_EQ(shards_[0].bytes()[static_cast<size_t>(at)], expected_byte(at)) << at;
  }
}

TEST_F(PageCacheTest, TheSecondTimeThereIsNothingToDo) {
  ASSERT_TRUE(widen({.worthwhile_bytes = 1}).is_ok());
  const auto huge = static_cast<double>(huge_mapped_bytes(shards_[0].bytes()));
  if (huge < kWideEnough * double{kFileBytes}) {
    GTEST_SKIP() << "the kernel found too few free huge pages";
  }
  const auto again = widen({.worthwhile_bytes = 1});
  ASSERT_TRUE(again.is_ok());
  EXPECT_EQ(*again, 0);
}

TEST_F(PageCacheTest, LeavesSmallShardsAlone) {
  const auto bytes = widen({.worthwhile_bytes = kFileBytes + 1});
  ASSERT_TRUE(bytes.is_ok());
  EXPECT_EQ(*bytes, 0);
}

TEST_F(PageCacheTest, AFileThatBecameShorterIsAnErrorNotACrash) {
  if (huge_mapped_bytes(shards_[0].bytes()) > 0) GTEST_SKIP() << "the cache is wide already";
  std::filesystem::resize_file(directory_ / "shard", kFileBytes - 8192);
  const auto bytes = widen({.worthwhile_bytes = 1});
  if (!bytes.is_ok()) {
    EXPECT_THAT(bytes.status().message(), ::testing::HasSubstr("shorter"));
  }
}

}  // namespace
}  // namespace motley
