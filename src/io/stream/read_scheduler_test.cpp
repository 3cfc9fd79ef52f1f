// The order of reads, cancelling and errors, with a backend that the test moves by hand.
#include "io/stream/read_scheduler.h"

#include <gmock/gmock.h>

#include "io/stream/read_backend_test_util.h"

namespace motley {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

constexpr int64_t kBlock = 4096;
constexpr int64_t kBlocks = 64;

class ReadSchedulerTest : public ::testing::Test {
 protected:
  void SetUp() override {
    directory_.write("a", random_bytes(kBlock * kBlocks, 1));
    auto buffer = AlignedBuffer::allocate(static_cast<size_t>(kBlock * kBlocks));
    ASSERT_TRUE(buffer.is_ok());
    buffer_ = std::move(*buffer);
    make({.depth = 2});
  }
  void make(const ReadSchedulerOptions& options) {
    std::vector<DirectFile> files;
    files.push_back(open_for_test(faults_, directory_ / "a"));
    auto manual = std::make_unique<ManualBackend>();
    drive_ = manual.get();
    scheduler_ = std::make_unique<ReadScheduler>(clock_, faults_, std::move(files),
                                                 OpenedReadBackend{std::move(manual), ""}, options);
  }
  ReadRange range(int64_t block, int64_t blocks = 1) {
    return {0, block * kBlock,
            buffer_.bytes().subspan(static_cast<size_t>(block * kBlock),
                                    static_cast<size_t>(blocks * kBlock))};
  }
  // The tag is also the block.
  void submit(uint64_t tag, ReadPriority priority) {
    const ReadRange ranges[] = {range(static_cast<int64_t>(tag))};
    scheduler_->submit(tag, priority, ranges);
    scheduler_->start();
  }
  std::vector<int64_t> started() const {
    std::vector<int64_t> blocks;
    for (const RawRead& read : drive_->started) blocks.push_back(read.offset / kBlock);
    return blocks;
  }
  std::vector<uint64_t> poll_tags() {
    std::vector<uint64_t> tags;
    for (const ReadCompletion& one : scheduler_->poll()) {
      EXPECT_TRUE(one.status.is_ok()) << one.status.message();
      tags.push_back(one.tag);
    }
    return tags;
  }

  TemporaryDirectory directory_;
  FaultPoints faults_;
  ManualClock clock_;
  AlignedBuffer buffer_;
  std::unique_ptr<ReadScheduler> scheduler_;
  ManualBackend* drive_ = nullptr;
};

TEST_F(ReadSchedulerTest, StartsTheMostUrgentAndKeepsItsDepth) {
  submit(10, ReadPriority::kSweep);
  submit(11, ReadPriority::kWarmUp);
  EXPECT_THAT(started(), ElementsAre(10, 11));
  submit(12, ReadPriority::kSweep);
  submit(13, ReadPriority::kWarmUp);
  submit(14, ReadPriority::kLookAhead);
  submit(15, ReadPriority::kDemandDown);
  submit(16, ReadPriority::kDemandGateUp);
  submit(17, ReadPriority::kDemandGateUp);
  EXPECT_THAT(started(), ElementsAre(10, 11));
  std::vector<uint64_t> order;
  while (!drive_->started.empty()) {
    EXPECT_LE(drive_->started.size(), 2u);
    drive_->arrive();
    for (const uint64_t tag : poll_tags()) order.push_back(tag);
  }
  EXPECT_THAT(order, ElementsAre(10, 11, 16, 17, 15, 14, 13, 12));
  EXPECT_TRUE(scheduler_->is_idle());
}

TEST_F(ReadSchedulerTest, ATagCompletesOnceWhenAllHasArrived) {
  const ReadRange ranges[] = {range(1), range(5), range(9)};
  scheduler_->submit(7, ReadPriority::kDemandGateUp, ranges);
  scheduler_->start();
  clock_.advance_ns(500'000'000);
  drive_->arrive_at(1);
  EXPECT_TRUE(poll_tags().empty());
  drive_->arrive_at(1);
  EXPECT_TRUE(poll_tags().empty());
  clock_.advance_ns(1'000'000'000);
  drive_->arrive();
  const auto completions = scheduler_->poll();
  ASSERT_EQ(completions.size(), 1u);
  EXPECT_EQ(completions[0].tag, 7u);
  EXPECT_DOUBLE_EQ(completions[0].seconds, 1.5);
  clock_.advance_ns(1'000'000'000);  // idle
  const ReadStats stats = scheduler_->stats();
  EXPECT_EQ(stats.of(ReadPriority::kDemandGateUp).reads, 3);
  EXPECT_EQ(stats.total_bytes(), 3 * kBlock);
  ASSERT_EQ(stats.drives.size(), 1u);
  EXPECT_EQ(stats.drives[0].bytes, 3 * kBlock);
  EXPECT_DOUBLE_EQ(stats.drives[0].busy_seconds, 1.5);
}

TEST_F(ReadSchedulerTest, CutsLongRanges) {
  make({.depth = 8, .max_read_bytes = 2 * kBlock});
  const ReadRange ranges[] = {range(1, 5)};
  scheduler_->submit(1, ReadPriority::kSweep, ranges);
  scheduler_->start();
  EXPECT_THAT(started(), ElementsAre(1, 3, 5));
  EXPECT_EQ(drive_->started[2].into.size(), size_t{kBlock});
  EXPECT_EQ(drive_->started[2].into.data(), ranges[0].into.data() + 4 * kBlock);
  while (!drive_->started.empty()) drive_->arrive();
  EXPECT_THAT(poll_tags(), ElementsAre(1));
}

TEST_F(ReadSchedulerTest, BackgroundLeavesRoomForDemand) {
  make({.depth = 3, .background_depth = 1});
  for (uint64_t tag = 1; tag <= 3; ++tag) submit(tag, ReadPriority::kLookAhead);
  EXPECT_THAT(started(), ElementsAre(1));
  submit(10, ReadPriority::kDemandDown);
  submit(11, ReadPriority::kDemandGateUp);
  submit(12, ReadPriority::kDemandGateUp);
  EXPECT_THAT(started(), ElementsAre(1, 10, 11));
  drive_->arrive();
  poll_tags();
  EXPECT_THAT(started(), ElementsAre(10, 11, 12));
  drive_->arrive();
  poll_tags();
  EXPECT_THAT(started(), ElementsAre(11, 12, 2));
}

TEST_F(ReadSchedulerTest, CancelDropsWhatWaitsAndOwnsWhatFlies) {
  const ReadRange ranges[] = {range(1), range(2), range(3), range(4)};
  scheduler_->submit(1, ReadPriority::kLookAhead, ranges);
  scheduler_->start();
  submit(9, ReadPriority::kSweep);
  EXPECT_TRUE(scheduler_->cancel(1));
  EXPECT_TRUE(scheduler_->poll().empty());  // two reads still own their buffers
  drive_->arrive();
  EXPECT_TRUE(scheduler_->poll().empty());
  EXPECT_THAT(started(), ElementsAre(2, 9));  // 3 and 4 never start
  drive_->arrive();
  const auto completions = scheduler_->poll();
  ASSERT_EQ(completions.size(), 1u);
  EXPECT_EQ(completions[0].tag, 1u);
  EXPECT_EQ(completions[0].status.code(), StatusCode::kCancelled);
  EXPECT_FALSE(scheduler_->cancel(1));
  const ReadStats stats = scheduler_->stats();
  EXPECT_EQ(stats.of(ReadPriority::kLookAhead).cancelled, 1);
  EXPECT_EQ(stats.of(ReadPriority::kLookAhead).reads, 2);
  EXPECT_EQ(stats.of(ReadPriority::kLookAhead).failures, 0);
}

TEST_F(ReadSchedulerTest, CancelOfWhatNeverStartedIsReportedAtOnce) {
  submit(1, ReadPriority::kSweep);
  submit(2, ReadPriority::kSweep);
  submit(3, ReadPriority::kSweep);
  EXPECT_TRUE(scheduler_->cancel(3));
  const auto completions = scheduler_->wait();
  ASSERT_EQ(completions.size(), 1u);
  EXPECT_EQ(completions[0].tag, 3u);
  submit(3, ReadPriority::kSweep);  // the tag is free again
  EXPECT_FALSE(scheduler_->is_idle());
}

TEST_F(ReadSchedulerTest, ARaisedLookAheadOvertakes) {
  for (uint64_t tag = 1; tag <= 5; ++tag) submit(tag, ReadPriority::kLookAhead);
  EXPECT_TRUE(scheduler_->raise(5, ReadPriority::kDemandGateUp));
  EXPECT_FALSE(scheduler_->raise(5, ReadPriority::kDemandGateUp));
  EXPECT_FALSE(scheduler_->raise(99, ReadPriority::kDemandGateUp));
  drive_->arrive();
  poll_tags();
  EXPECT_THAT(started(), ElementsAre(2, 5));
  EXPECT_TRUE(scheduler_->cancel(5));
  drive_->arrive_at(1);
  EXPECT_EQ(scheduler_->poll().at(0).status.code(), StatusCode::kCancelled);
  EXPECT_EQ(scheduler_->stats().of(ReadPriority::kDemandGateUp).reads, 1);
}

TEST_F(ReadSchedulerTest, AnErrorIsReadAgain) {
  submit(3, ReadPriority::kDemandGateUp);
  drive_->fail(EIO);
  EXPECT_THAT(poll_tags(), ElementsAre(3));
  const std::string bytes = random_bytes(kBlock * kBlocks, 1);
  EXPECT_EQ(std::memcmp(range(3).into.data(), bytes.data() + 3 * kBlock, size_t{kBlock}), 0);
  const ReadStats stats = scheduler_->stats();
  EXPECT_EQ(stats.of(ReadPriority::kDemandGateUp).retries, 1);
  EXPECT_EQ(stats.of(ReadPriority::kDemandGateUp).failures, 0);
}

TEST_F(ReadSchedulerTest, TwoErrorsFailTheRequestAndNothingElse) {
  const ReadRange ranges[] = {range(1), range(2), range(3)};
  scheduler_->submit(1, ReadPriority::kDemandGateUp, ranges);
  scheduler_->start();
  submit(9, ReadPriority::kDemandGateUp);
  faults_.arm("io.stream.read", 1, io_error("first"));
  faults_.arm("io.stream.retry", 1, io_error("second"));
  drive_->arrive();
  EXPECT_TRUE(scheduler_->poll().empty());    // block 2 is in flight
  EXPECT_THAT(started(), ElementsAre(2, 9));  // block 3 is not worth reading
  drive_->arrive();
  const auto completions = scheduler_->poll();
  ASSERT_EQ(completions.size(), 1u);
  EXPECT_EQ(completions[0].status.code(), StatusCode::kIo);
  EXPECT_EQ(completions[0].status.message(),
            (directory_ / "a") + ": cannot read 4096 bytes from offset 4096: Input/output error");
  EXPECT_EQ(scheduler_->stats().of(ReadPriority::kDemandGateUp).failures, 1);
  drive_->arrive();
  EXPECT_THAT(poll_tags(), ElementsAre(9));
}

TEST_F(ReadSchedulerTest, AFileThatWasCutIsAnError) {
  std::filesystem::resize_file(directory_ / "a", 10 * kBlock + 5);
  submit(10, ReadPriority::kDemandGateUp);
  drive_->fail(EAGAIN);
  const auto completions = scheduler_->poll();
  ASSERT_EQ(completions.size(), 1u);
  EXPECT_THAT(completions[0].status.message(), HasSubstr("only 5 of 4096 bytes from offset 40960"));
}

TEST_F(ReadSchedulerTest, ARequestWithoutRangesCompletes) {
  scheduler_->submit(1, ReadPriority::kWarmUp, {});
  scheduler_->start();
  EXPECT_THAT(poll_tags(), ElementsAre(1));
  EXPECT_TRUE(scheduler_->wait().empty());
}

using ReadSchedulerDeathTest = ReadSchedulerTest;
TEST_F(ReadSchedulerDeathTest, MisuseIsABug) {
  ReadRange crooked = range(1, 2);
  crooked.into = crooked.into.subspan(1, size_t{kBlock});
  if (scheduler_->files()[0].memory_alignment() > 1) {
    EXPECT_DEATH(scheduler_->submit(1, ReadPriority::kSweep, {&crooked, 1}), "not aligned");
  }
  ReadRange late = range(1);
  late.offset = kBlock * kBlocks;
  EXPECT_DEATH(scheduler_->submit(1, ReadPriority::kSweep, {&late, 1}), "outside the file");
  ReadRange partial = range(1);
  partial.into = partial.into.first(100);
  EXPECT_DEATH(scheduler_->submit(1, ReadPriority::kSweep, {&partial, 1}), "whole blocks");
  submit(2, ReadPriority::kSweep);
  EXPECT_DEATH(submit(2, ReadPriority::kSweep), "a tag that is in use");
}

}  // namespace
}  // namespace motley
