#include "base/progress.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <sstream>
#include <thread>
#include <vector>

namespace motley {
namespace {

using ::testing::EndsWith;
using ::testing::HasSubstr;
using ::testing::Not;

constexpr int64_t kSecondNs = 1'000'000'000;

ProgressOptions bytes(uint64_t total) {
  return {.label = "loading", .total = total, .unit = ProgressUnit::kBytes, .item_name = ""};
}

TEST(FormatProgress, ShareAmountRateAndRest) {
  EXPECT_EQ(format_progress(bytes(20'200'000'000), 9'090'000'000, 4.0, 80),
            "loading   45% [=============>               ]  9.09/20.2 GB  2.27 GB/s  5 s left");
}

TEST(FormatProgress, ItemsCarryTheirName) {
  const ProgressOptions options = {
      .label = "prefill", .total = 4096, .unit = ProgressUnit::kItems, .item_name = "tokens"};
  EXPECT_EQ(format_progress(options, 1024, 8.0, 60),
            "prefill   25%  1024/4096  128 tokens/s  24 s left");
}

TEST(FormatProgress, UnknownTotalHasNoShareAndNoEstimate) {
  EXPECT_EQ(format_progress(bytes(0), 5'000'000, 2.0, 80), "loading  5 MB  2.50 MB/s");
}

TEST(FormatProgress, NeverWiderThanTheTerminal) {
  for (int width = 0; width < 120; ++width) {
    EXPECT_LE(format_progress(bytes(1'000'000'000'000), 999'999'999, 12.5, width).size(),
              static_cast<size_t>(width));
  }
}

TEST(FormatProgress, OddFiguresStaySane) {
  EXPECT_THAT(format_progress(bytes(100), 0, 0.0, 80), HasSubstr("  0%"));
  EXPECT_THAT(format_progress(bytes(100), 250, 1.0, 80), HasSubstr("100%"));
  EXPECT_THAT(format_progress(bytes(100'000'000), 1, 3600.0, 80), EndsWith("99:59 h left"));
  EXPECT_THAT(format_progress(bytes(7'200), 100, 1.0, 80), EndsWith("1:11 min left"));
}

TEST(ProgressBar, AppearsForLongWorkAndLeavesACleanLine) {
  ManualClock clock;
  std::ostringstream stream;
  {
    ProgressBar bar(clock, bytes(1000), {&stream, 80});
    clock.advance_ns(kSecondNs / 4);
    bar.advance(100);
    EXPECT_EQ(stream.str(), "") << "too early";
    clock.advance_ns(kSecondNs);
    bar.advance(100);
    EXPECT_THAT(stream.str(), HasSubstr("20%"));
    const size_t drawn = stream.str().size();
    bar.advance(100);
    EXPECT_EQ(stream.str().size(), drawn) << "at most ten times a second";
    EXPECT_EQ(bar.done(), 300U);
  }
  EXPECT_THAT(stream.str(), EndsWith("\r\x1b[K"));
}

TEST(ProgressBar, StaysAwayWhenTheEndIsNear) {
  ManualClock clock;
  std::ostringstream stream;
  ProgressBar bar(clock, bytes(1000), {&stream, 80});
  clock.advance_ns(kSecondNs * 6 / 10);
  bar.advance(900);
  bar.finish();
  EXPECT_EQ(stream.str(), "");
}

TEST(ProgressBar, QuietWhenNotATerminal) {
  ManualClock clock;
  std::ostringstream stream;
  ProgressBar bar(clock, bytes(1000), {&stream, 0});
  clock.advance_ns(5 * kSecondNs);
  bar.advance(100);
  bar.finish();
  EXPECT_EQ(stream.str(), "");
  EXPECT_EQ(bar.done(), 100U);
}

TEST(ProgressBar, ThreadsAddUp) {
  SteadyClock clock;
  std::ostringstream stream;
  ProgressBar bar(clock, bytes(40'000), {&stream, 80});
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([&bar] {
      for (int i = 0; i < 10'000; ++i) bar.advance(1);
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(bar.done(), 40'000U);
}

}  // namespace
}  // namespace motley
