#include "io/mapped_file.h"

#include <gmock/gmock.h>

#include <filesystem>

#include "base/owned_context.h"
#include "support/test_files.h"

namespace motley {
namespace {

using ::testing::HasSubstr;

Result<MappedFile> map(FaultPoints& faults, const std::string& path) {
  MOTLEY_ASSIGN_OR_RETURN(File file, File::open(faults, path));
  return MappedFile::map(faults, std::move(file));
}

TEST(MappedFile, ShowsTheBytes) {
  const TemporaryDirectory directory;
  directory.write("a", "0123456789");
  FaultPoints faults;
  auto mapped = map(faults, directory / "a");
  ASSERT_TRUE(mapped.is_ok());
  const MappedFile moved = std::move(*mapped);
  ASSERT_EQ(moved.bytes().size(), 10u);
  EXPECT_EQ(moved.bytes()[9], std::byte{'9'});
}

TEST(MappedFile, RefusesEmptyFilesAndFaults) {
  const TemporaryDirectory directory;
  directory.write("empty", "");
  directory.write("a", "x");
  FaultPoints faults;
  EXPECT_THAT(map(faults, directory / "empty").status().message(), HasSubstr("/empty: is empty"));
  faults.arm("io.map", 1, resource_exhausted("no address space"));
  EXPECT_THAT(map(faults, directory / "a").status().message(), HasSubstr("/a: no address space"));
}

TEST(MappedFile, PopulatesMergedRanges) {
  const TemporaryDirectory directory;
  directory.write("a", std::string(100'000, 'x'));
  OwnedContext context(test_threads());
  const auto mapped = map(context.faults(), directory / "a");
  ASSERT_TRUE(mapped.is_ok());
  const auto bytes = mapped->bytes();
  int64_t total = 0;
  // The first two share pages: each page counts once.
  const Status status = populate(context.get(),
                                 {bytes.subspan(5000, 3000), bytes.subspan(7000, 3000),
                                  bytes.subspan(90'000, 10'000), bytes.subspan(0, 0)},
                                 [&](int64_t done, int64_t all) {
                                   EXPECT_LE(done, all);
                                   total = all;
                                 });
  EXPECT_TRUE(status.is_ok()) << status.message();
  EXPECT_EQ(total, (2 + 4) * 4096);
  release_pages({bytes});
  EXPECT_EQ(bytes[99'999], std::byte{'x'});
}

TEST(MappedFile, TruncationDuringPopulateIsAnError) {
  const TemporaryDirectory directory;
  directory.write("a", std::string(100'000, 'x'));
  OwnedContext context(test_threads());
  const auto mapped = map(context.faults(), directory / "a");
  ASSERT_TRUE(mapped.is_ok());
  std::filesystem::resize_file(directory / "a", 4096);
  const Status status = populate(context.get(), {mapped->bytes()}, {});
  EXPECT_THAT(status.message(), HasSubstr("became shorter"));
}

using MappedFileDeathTest = ::testing::Test;

TEST(MappedFileDeathTest, TruncationEndsWithOneLine) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  const TemporaryDirectory directory;
  directory.write("shard.safetensors", std::string(100'000, 'x'));
  EXPECT_EXIT(
      {
        FaultPoints faults;
        const auto mapped = map(faults, directory / "shard.safetensors");
        std::filesystem::resize_file(directory / "shard.safetensors", 4096);
        const volatile auto* bytes = mapped->bytes().data();
        const std::byte last = bytes[90'000];
        std::_Exit(static_cast<int>(last) + 2);
      },
      ::testing::ExitedWithCode(1),
      "motley: .*shard.safetensors: the file became shorter or unreadable while in use");
}

}  // namespace
}  // namespace motley
