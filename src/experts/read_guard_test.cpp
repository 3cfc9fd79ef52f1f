#include "experts/read_guard.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cerrno>
#include <cstring>

#include "base/aligned_buffer.h"
#include "base/hash.h"
#include "experts/read_pump.h"
#include "io/stream/read_backend_test_util.h"
#include "support/test_files.h"

namespace motley {
namespace {

using testing::HasSubstr;

constexpr size_t kBytes = 8192;

// Three files: the first two are equal, the third is not.
class ReadGuardTest : public testing::Test {
 protected:
  void SetUp() override {
    folder_.write("a", content_);
    folder_.write("b", content_);
    folder_.write("c", random_bytes(4 * kBytes, 2));
    for (const char* name : {"a", "b", "c"}) {
      files_.push_back(open_for_test(faults_, folder_ / name));
    }
    buffer_ = AlignedBuffer::allocate(kBytes).value();
    std::memcpy(buffer_.data(), content_.data() + kBytes, kBytes);
  }
  ReadGuard guard(int file, int other) {
    return {.range = {.file = file, .offset = kBytes, .into = buffer_.bytes()},
            .checksum = hash_bytes(std::string_view(content_).substr(kBytes, kBytes)),
            .other_file = other};
  }
  Status inspect(const ReadGuard& guard, Status arrived = Status::ok()) {
    return inspect_read(guard, files_, std::move(arrived), clock_, faults_, &stats_);
  }
  bool is_right() const {
    return std::memcmp(buffer_.data(), content_.data() + kBytes, kBytes) == 0;
  }

  TemporaryDirectory folder_;
  FaultPoints faults_;
  SteadyClock clock_;
  std::string content_ = random_bytes(4 * kBytes, 1);
  std::vector<DirectFile> files_;
  AlignedBuffer buffer_;
  GuardStats stats_;
};

TEST_F(ReadGuardTest, RightBytesPass) {
  EXPECT_TRUE(inspect(guard(0, -1)).is_ok());
  EXPECT_EQ(stats_.checked_bytes, static_cast<int64_t>(kBytes));
  EXPECT_EQ(stats_.mismatches + stats_.rescued, 0);
}

TEST_F(ReadGuardTest, WrongBytesAreReadAgainWhereTheyWere) {
  buffer_.data()[17] ^= std::byte{1};
  EXPECT_TRUE(inspect(guard(0, -1)).is_ok());
  EXPECT_TRUE(is_right());
  EXPECT_EQ(stats_.mismatches, 1);
  EXPECT_EQ(stats_.rescued, 1);
}

TEST_F(ReadGuardTest, DamageOnTheDriveIsHealedByAMirrorAndElseFails) {
  std::memcpy(buffer_.data(), folder_.read("c").data() + kBytes, kBytes);
  const Status status = inspect(guard(2, -1));
  EXPECT_EQ(status.code(), StatusCode::kIo);
  EXPECT_THAT(status.message(), HasSubstr("/c: 8192 bytes from offset 8192 have another checksum"));
  EXPECT_EQ(stats_.mismatches, 2);
  EXPECT_TRUE(inspect(guard(2, 1)).is_ok());
  EXPECT_TRUE(is_right());
}

TEST_F(ReadGuardTest, AFailedReadIsDoneAtTheMirror) {
  std::memset(buffer_.data(), 0, kBytes);
  EXPECT_EQ(inspect(guard(0, -1), io_error("a", EIO)).code(), StatusCode::kIo);
  EXPECT_TRUE(inspect(guard(0, 1), io_error("a", EIO)).is_ok());
  EXPECT_TRUE(is_right());
  ReadGuard unchecked = guard(0, 1);
  unchecked.checksum.reset();
  std::memset(buffer_.data(), 0, kBytes);
  EXPECT_TRUE(inspect(unchecked, io_error("a", EIO)).is_ok());
  EXPECT_TRUE(is_right());
  EXPECT_EQ(inspect(guard(0, 1), cancelled("x")).code(), StatusCode::kCancelled);
}

TEST_F(ReadGuardTest, APumpInspectsWhatItReads) {
  std::vector<DirectFile> files;
  for (const char* name : {"a", "b", "c"}) {
    files.push_back(open_for_test(faults_, folder_ / name));
  }
  auto reads = ReadScheduler::open(clock_, faults_, std::move(files),
                                   {.backend = ReadBackendKind::kPread, .threads = 2});
  ASSERT_TRUE(reads.is_ok());
  ReadPump pump(clock_, faults_, std::move(*reads));
  ASSERT_TRUE(pump.start_thread().is_ok());
  const int both[] = {1, 0};
  EXPECT_EQ(pump.least_busy(both), 1) << "one drive: the first";
  for (uint64_t round = 0; round < 200; ++round) {
    std::memset(buffer_.data(), 0, kBytes);
    const bool damaged = round % 3 == 2;
    pump.submit(round, ReadPriority::kDemandGateUp, guard(damaged ? 2 : 0, damaged ? 1 : -1));
    std::vector<ReadCompletion> taken;
    // Waits in the scheduler in some rounds and asks now and then in others: either thread
    // may be the one that inspects.
    while (taken.empty()) taken = pump.take(round % 2 == 0);
    ASSERT_EQ(taken.size(), 1U);
    EXPECT_EQ(taken[0].tag, round);
    EXPECT_TRUE(taken[0].status.is_ok()) << taken[0].status.message();
    EXPECT_TRUE(is_right()) << round;
  }
  const GuardStats stats = pump.guard_stats();
  EXPECT_EQ(stats.rescued, 66);
  EXPECT_EQ(stats.checked_bytes, static_cast<int64_t>((200 + 66) * kBytes));
}

}  // namespace
}  // namespace motley
