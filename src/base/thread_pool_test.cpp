#include "base/thread_pool.h"

#include <gtest/gtest.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <numeric>
#include <string>
#include <thread>
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

std::atomic<bool> in_handler{false};
std::atomic<bool> let_go{false};

// Keeps a worker from coming, as a machine does that gives its core to another process. The signal
// is one of those that workers take.
void hold_thread(int) {
  in_handler = true;
  while (!let_go) {
  }
}

TEST(ThreadPool, ALoopDoesNotWaitForAWorkerThatDoesNotCome) {
  ThreadPool pool({.threads = 2, .pin = false});
  std::atomic<int> inside{0};
  std::atomic<pid_t> thread{0};
  pool.parallel_for(2, 1, [&](int worker, int64_t, int64_t) {
    ++inside;
    if (worker == 1) thread = gettid();
    while (inside.load() < 2) std::this_thread::yield();
  });
  const auto former = std::signal(SIGFPE, hold_thread);
  ASSERT_EQ(syscall(SYS_tgkill, getpid(), thread.load(), SIGFPE), 0);
  while (!in_handler) std::this_thread::yield();
  int64_t pieces = 0;
  pool.parallel_for(100, 1, [&](int worker, int64_t, int64_t) {
    EXPECT_EQ(worker, 0);
    ++pieces;
  });
  EXPECT_EQ(pieces, 100);
  let_go = true;
  std::signal(SIGFPE, former);
}

TEST(ThreadPool, AWorkerInsideALoopIsWaitedFor) {
  ThreadPool pool({.threads = 2, .pin = false});
  std::atomic<int> inside{0};
  std::atomic<int> done{0};
  pool.parallel_for(2, 1, [&](int worker, int64_t, int64_t) {
    ++inside;
    while (inside.load() < 2) std::this_thread::yield();
    if (worker != 0) std::this_thread::sleep_for(std::chrono::milliseconds(30));
    ++done;
  });
  EXPECT_EQ(done.load(), 2);
}

// In a process of its own: the limit on memory stays.
void start_too_many_threads() {
  std::ifstream statm("/proc/self/statm");
  rlim_t pages = 0;
  statm >> pages;
  const rlim_t bytes = pages * static_cast<rlim_t>(sysconf(_SC_PAGESIZE)) + (rlim_t{48} << 20);
  const rlimit limit{bytes, bytes};
  setrlimit(RLIMIT_AS, &limit);
  ThreadPool pool({.threads = 64, .pin = false});
  std::fputs(pool.status().message().c_str(), stderr);
  int64_t sum = 0;
  pool.parallel_for(10, 3, [&](int, int64_t begin, int64_t end) { sum += end - begin; });
  std::exit(pool.status().code() == StatusCode::kResourceExhausted && pool.size() == 1 && sum == 10
                ? 0
                : 1);
}

TEST(ThreadPoolDeathTest, ARefusedThreadIsAnErrorAndThePoolStaysUsable) {
#ifdef MOTLEY_SLOW_CODE
  GTEST_SKIP() << "sanitizers and emulators have address space of their own";
#endif
  EXPECT_EXIT(
      start_too_many_threads(), testing::ExitedWithCode(0),
      "cannot start 64 threads: Resource temporarily unavailable; give fewer with --threads");
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
