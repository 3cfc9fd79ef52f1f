#include "io/stream/direct_file.h"

#include <gmock/gmock.h>

#include <filesystem>

#include "io/stream/read_backend_test_util.h"

namespace motley {
namespace {

using ::testing::HasSubstr;

constexpr size_t kOddBytes = 3 * 4096 + 1234;

std::string_view as_text(const AlignedBuffer& buffer, size_t at, size_t bytes) {
  return {reinterpret_cast<const char*>(buffer.data()) + at, bytes};
}

// Every way of reading a file of an odd size gives its bytes.
void expect_all_ranges(const DirectFile& file, const std::string& bytes) {
  auto buffer = AlignedBuffer::allocate(8 * 4096);
  ASSERT_TRUE(buffer.is_ok());
  const auto size = static_cast<int64_t>(bytes.size());
  for (int64_t offset = 0; offset < size; offset += 777) {
    for (const int64_t count : {int64_t{1}, int64_t{513}, size - offset}) {
      if (offset + count > size) continue;
      const FileRange range = file.aligned_range(offset, count);
      ASSERT_EQ(range.offset % file.block_bytes(), 0);
      ASSERT_EQ(range.bytes % file.block_bytes(), 0);
      ASSERT_LE(range.offset, offset);
      ASSERT_GE(range.offset + range.bytes, offset + count);
      ASSERT_LT(range.bytes, count + 2 * file.block_bytes());
      const auto into = buffer->bytes().first(static_cast<size_t>(range.bytes));
      ASSERT_EQ(file.read(range.offset, into), file.present_bytes(range)) << offset;
      ASSERT_EQ(
          as_text(*buffer, static_cast<size_t>(offset - range.offset), static_cast<size_t>(count)),
          std::string_view(bytes).substr(static_cast<size_t>(offset), static_cast<size_t>(count)));
      file.drop_cached(range);
    }
  }
}

TEST(DirectFile, ReadsAFileOfAnOddSize) {
  const TemporaryDirectory directory;
  FaultPoints faults;
  const std::string bytes = random_bytes(kOddBytes, 1);
  directory.write("a", bytes);
  const DirectFile file = open_for_test(faults, directory / "a");
  EXPECT_EQ(file.size(), static_cast<int64_t>(kOddBytes));
  EXPECT_EQ(file.is_direct(), file.reason().empty());
  EXPECT_GE(file.block_bytes(), 512);
  EXPECT_GE(file.memory_alignment(), 1);
  expect_all_ranges(file, bytes);
}

TEST(DirectFile, FallsBackWithAReason) {
  const TemporaryDirectory directory;
  FaultPoints faults;
  const std::string bytes = random_bytes(kOddBytes, 2);
  directory.write("a", bytes);
  faults.arm("io.stream.direct", 1, unsupported("no direct reads today"));
  const DirectFile refused = open_for_test(faults, directory / "a");
  EXPECT_FALSE(refused.is_direct());
  EXPECT_EQ(refused.reason(), "no direct reads today");
  expect_all_ranges(refused, bytes);
  const DirectFile buffered = open_for_test(faults, directory / "a", CacheUse::kBuffered);
  EXPECT_THAT(buffered.reason(), HasSubstr("asked for"));
  expect_all_ranges(buffered, bytes);
}

TEST(DirectFile, WorksInMemoryFileSystems) {
  if (!std::filesystem::is_directory("/dev/shm")) GTEST_SKIP() << "no /dev/shm";
  std::string path = "/dev/shm/motley-XXXXXX";
  const Descriptor made(mkstemp(path.data()));
  ASSERT_TRUE(made.is_open());
  const std::string bytes = random_bytes(kOddBytes, 3);
  std::ofstream(path, std::ios::binary) << bytes;
  FaultPoints faults;
  const DirectFile file = open_for_test(faults, path);
  std::filesystem::remove(path);
  expect_all_ranges(file, bytes);
}

TEST(DirectFile, OutlivesItsFileAndItsName) {
  const TemporaryDirectory directory;
  FaultPoints faults;
  const std::string bytes = random_bytes(kOddBytes, 4);
  directory.write("a", bytes);
  const std::ptrdiff_t before = open_descriptors();
  {
    const DirectFile file = open_for_test(faults, directory / "a");
    EXPECT_EQ(open_descriptors(), before + 1);
    std::filesystem::remove(directory / "a");
    directory.write("a", "another file");
    expect_all_ranges(file, bytes);
  }
  EXPECT_EQ(open_descriptors(), before);
}

TEST(DirectFile, EmptyAndTinyFiles) {
  const TemporaryDirectory directory;
  FaultPoints faults;
  for (const char* text : {"", "x"}) {
    directory.write("a", text);
    const DirectFile file = open_for_test(faults, directory / "a");
    expect_all_ranges(file, text);
    const FileRange none = file.aligned_range(0, 0);
    EXPECT_EQ(none.bytes, 0);
    EXPECT_EQ(file.present_bytes({0, file.block_bytes()}), file.size());
    EXPECT_EQ(file.present_bytes({file.block_bytes(), file.block_bytes()}), 0);
  }
}

TEST(DirectFile, AnErrorIsItsNumber) {
  const TemporaryDirectory directory;
  FaultPoints faults;
  directory.write("a", random_bytes(kOddBytes, 5));
  const DirectFile file = open_for_test(faults, directory / "a");
  // An address that is not ours.
  const std::span<std::byte> nowhere(reinterpret_cast<std::byte*>(uintptr_t{4096}), 4096);
  EXPECT_EQ(file.read(0, nowhere), -EFAULT);
}

}  // namespace
}  // namespace motley
