#include "io/stream/read_backend.h"

#include <gtest/gtest.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <sys/prctl.h>
#include <sys/syscall.h>

#include <set>

#include "io/stream/read_backend_test_util.h"

namespace motley {
namespace {

constexpr int64_t kBlock = 4096;
constexpr int kBlocks = 64;

class ReadBackendTest : public ::testing::TestWithParam<ReadBackendKind> {
 protected:
  void SetUp() override {
    if (GetParam() == ReadBackendKind::kUring && !has_uring()) GTEST_SKIP() << "no io_uring here";
    directory_.write("a", bytes_);
    files_.push_back(open_for_test(faults_, directory_ / "a"));
    auto buffer = AlignedBuffer::allocate(static_cast<size_t>(kBlock * kBlocks));
    ASSERT_TRUE(buffer.is_ok());
    buffer_ = std::move(*buffer);
  }
  std::unique_ptr<ReadBackend> open() {
    auto opened = open_read_backend(descriptors_of(files_),
                                    {.kind = GetParam(), .capacity = kBlocks, .threads = 3});
    EXPECT_TRUE(opened.is_ok());
    EXPECT_EQ(opened->reason, "");
    return std::move(opened->backend);
  }
  std::span<std::byte> block(int index) {
    return buffer_.bytes().subspan(static_cast<size_t>(index * kBlock), size_t{kBlock});
  }
  RawRead read_of(int index) {
    return {0, int64_t{index} * kBlock, block(index), static_cast<uint64_t>(index)};
  }
  void expect_whole_file(ReadBackend& backend) {
    for (int i = 0; i < kBlocks; ++i) backend.submit(read_of(kBlocks - 1 - i));
    backend.flush();
    std::vector<RawCompletion> completions;
    while (completions.size() < size_t{kBlocks}) backend.wait(&completions, 5);
    std::set<uint64_t> ids;
    for (const RawCompletion& one : completions) {
      EXPECT_EQ(one.result, kBlock);
      ids.insert(one.id);
    }
    EXPECT_EQ(ids.size(), size_t{kBlocks});
    EXPECT_EQ(std::memcmp(buffer_.data(), bytes_.data(), bytes_.size()), 0);
    backend.wait(&completions, 1);  // nothing is in flight: returns
    EXPECT_EQ(completions.size(), size_t{kBlocks});
  }

  const std::string bytes_ = random_bytes(kBlock * kBlocks, 7);
  TemporaryDirectory directory_;
  FaultPoints faults_;
  AlignedBuffer buffer_;  // outlives the backends of a test
  std::vector<DirectFile> files_;
};

TEST_P(ReadBackendTest, ReadsEveryByte) {
  const auto backend = open();
  EXPECT_EQ(backend->name(), GetParam() == ReadBackendKind::kUring ? "io_uring" : "pread");
  expect_whole_file(*backend);
  std::memset(buffer_.data(), 0, buffer_.size());
  expect_whole_file(*backend);
}

TEST_P(ReadBackendTest, ReadsIntoRegisteredBuffersAndBesideThem) {
  const auto backend = open();
  // Registered are all blocks but 10 to 19; a read over the edge belongs to none.
  const std::vector<std::span<std::byte>> registered = {buffer_.bytes().subspan(20 * kBlock),
                                                        buffer_.bytes().first(10 * kBlock)};
  const Status status = backend->register_buffers(registered);
  EXPECT_TRUE(status.is_ok() || status.code() == StatusCode::kResourceExhausted);
  expect_whole_file(*backend);
  std::memset(buffer_.data(), 0, buffer_.size());
  backend->submit({0, 8 * kBlock, buffer_.bytes().subspan(8 * kBlock, 4 * kBlock), 1});
  std::vector<RawCompletion> completions;
  backend->wait(&completions, 1);
  ASSERT_EQ(completions.size(), 1u);
  EXPECT_EQ(completions[0].result, 4 * kBlock);
  EXPECT_EQ(std::memcmp(block(8).data(), bytes_.data() + 8 * kBlock, 4 * kBlock), 0);
}

TEST_P(ReadBackendTest, ReportsErrorsAndTheEndOfTheFile) {
  const auto backend = open();
  backend->submit({0, kBlocks * kBlock, block(0), 1});
  backend->submit({0, 0, {reinterpret_cast<std::byte*>(uintptr_t{4096}), size_t{kBlock}}, 2});
  std::vector<RawCompletion> completions;
  while (completions.size() < 2) backend->wait(&completions, 1);
  for (const RawCompletion& one : completions) EXPECT_EQ(one.result, one.id == 1 ? 0 : -EFAULT);
}

TEST_P(ReadBackendTest, TheEndWaitsForReadsAndClosesEverything) {
  const std::ptrdiff_t before = open_descriptors();
  for (int round = 0; round < 20; ++round) {
    std::memset(buffer_.data(), 0, buffer_.size());
    {
      const auto backend = open();
      for (int i = 0; i < kBlocks; ++i) backend->submit(read_of(i));
      backend->flush();
    }
    // No read can come later than this.
    ASSERT_EQ(std::memcmp(buffer_.data(), bytes_.data(), bytes_.size()), 0);
  }
  EXPECT_EQ(open_descriptors(), before);
}

INSTANTIATE_TEST_SUITE_P(Both, ReadBackendTest,
                         ::testing::Values(ReadBackendKind::kUring, ReadBackendKind::kPread),
                         [](const auto& kind) {
                           return kind.param == ReadBackendKind::kUring ? "uring" : "pread";
                         });

// As in a container whose seccomp profile knows no io_uring. Cannot be undone in this process.
bool forbid_system_call(int number) {
  sock_filter filter[] = {
      {BPF_LD | BPF_W | BPF_ABS, 0, 0, offsetof(seccomp_data, nr)},
      {BPF_JMP | BPF_JEQ | BPF_K, 0, 1, static_cast<uint32_t>(number)},
      {BPF_RET | BPF_K, 0, 0, SECCOMP_RET_ERRNO | EPERM},
      {BPF_RET | BPF_K, 0, 0, SECCOMP_RET_ALLOW},
  };
  const sock_fprog program = {4, filter};
  return prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0 &&
         prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program) == 0;
}

// In a process of its own: reads a file without that system call. Ends with 0 when all is well.
[[noreturn]] void read_without(int number, const std::string& path) {
  FaultPoints faults;
  std::vector<DirectFile> files;
  files.push_back(open_for_test(faults, path));
  if (!forbid_system_call(number)) _exit(77);
  const auto forced = open_read_backend({}, {.kind = ReadBackendKind::kUring});
  if (forced.status().code() != StatusCode::kUnsupported) _exit(3);
  auto opened = open_read_backend(descriptors_of(files), {});
  if (!opened.is_ok() || opened->reason.find("seccomp") == std::string::npos) _exit(1);
  auto buffer = AlignedBuffer::allocate(4096);
  opened->backend->submit({0, 0, buffer->bytes(), 5});
  std::vector<RawCompletion> completions;
  opened->backend->wait(&completions, 1);
  _exit(completions.size() == 1 && completions[0].result == 3000 ? 0 : 2);
}

TEST(ReadBackendDeathTest, AForbiddenRingIsReplacedBeforeAnyReadOrRefusedWhenAskedFor) {
  const TemporaryDirectory directory;
  directory.write("a", random_bytes(3000, 1));
  const auto well_or_no_filters = [](int status) {
    return WIFEXITED(status) && (WEXITSTATUS(status) == 0 || WEXITSTATUS(status) == 77);
  };
  EXPECT_EXIT(read_without(__NR_io_uring_setup, directory / "a"), well_or_no_filters, "");
  if (!has_uring()) GTEST_SKIP() << "no io_uring here: no ring to forbid the use of";
  EXPECT_EXIT(read_without(__NR_io_uring_enter, directory / "a"), well_or_no_filters, "");
}

}  // namespace
}  // namespace motley
