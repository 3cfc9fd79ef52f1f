#include "base/thread_pool.h"

#include <gtest/gtest.h>

#include <atomic>
#include <numeric>
#include <vector>

#include "base/cpu_topology.h"

namespace motley {
namespace {

TEST(ThreadPool, RunsEveryIndexOnce) {
  for (const int threads : {1, 2, 5}) {
    ThreadPool pool({.threads = threads, .pin = false});
    for (const int64_t grain : {1, 3, 1000}) {
      std::vector<std::atomic<int>> hits(501);
      pool.parallel_for(501, grain, [&](int worker, int64_t begin, int64_t end) {
        ASSERT_LT(worker, threads);
        ASSERT_LE(end - begin, grain);
        for (int64_t i = begin; i < end; ++i) hits[static_cast<size_t>(i)]++;
      });
      for (const auto& hit : hits) EXPECT_EQ(hit.load(), 1);
    }
  }
}

TEST(ThreadPool, RangesCoverEveryIndexOnceAndShrink) {
  for (const int threads : {1, 2, 5}) {
    ThreadPool pool({.threads = threads, .pin = false});
    for (const int64_t count : {0, 1, 2, 501}) {
      std::vector<std::atomic<int>> hits(static_cast<size_t>(count));
      pool.parallel_ranges(count, [&](int worker, int64_t begin, int64_t end) {
        ASSERT_LT(worker, threads);
        ASSERT_LT(begin, end);
        // At most half of an even share of what was left when the range was taken.
        if (threads > 1 && count > 1) {
          EXPECT_EQ(end - begin, std::max<int64_t>(1, (count - begin) / (2 * threads)));
        }
        for (int64_t i = begin; i < end; ++i) hits[static_cast<size_t>(i)]++;
      });
      for (const auto& hit : hits) EXPECT_EQ(hit.load(), 1);
    }
  }
}

TEST(ThreadPool, ManyShortLoopsFinish) {
  ThreadPool pool({.threads = 3, .pin = false});
  std::atomic<int64_t> total{0};
  for (int loop = 0; loop < 3000; ++loop) {
    pool.parallel_for(4, 1, [&](int, int64_t begin, int64_t end) { total += end - begin; });
  }
  EXPECT_EQ(total.load(), 12000);
}

TEST(ThreadPool, EmptyLoopIsFine) {
  ThreadPool pool({.threads = 2});
  pool.parallel_for(0, 1, [](int, int64_t, int64_t) { FAIL(); });
}

TEST(CpuTopology, FindsAtLeastOneCore) {
  const CpuTopology topology = read_cpu_topology();
  EXPECT_FALSE(topology.cpus.empty());
  EXPECT_GE(topology.default_threads(), 1);
  EXPECT_LE(topology.physical_cores, static_cast<int>(topology.cpus.size()));
}

}  // namespace
}  // namespace motley
