#include "base/thread_pool.h"

#include <fmt/format.h>
#include <pthread.h>
#include <sched.h>

#include <algorithm>
#include <atomic>
#include <csignal>
#include <new>
#include <span>
#include <string>
#include <system_error>
#include <thread>
#include <vector>

#include "base/check.h"
#include "base/cpu_topology.h"

namespace motley {
namespace {

// About 20 to 50 microseconds: longer than the gap between two ops of a step.
constexpr int kSpins = 4000;

// Then the wait gives the core away, first to whoever is ready, then by sleeping.
constexpr int kYields = 16;

constexpr uint32_t kOpen = uint32_t{1} << 31;

// In the place of a grain: ranges that shrink.
constexpr int64_t kShrinking = 0;

void pause_cpu() {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#elif defined(__aarch64__)
  asm volatile("yield");
#endif
}

// Signals are for the thread that waits for them; those that tell of the thread's own fault (a
// mapped file that was truncated, say) must stay.
void block_foreign_signals() {
  sigset_t signals;
  sigfillset(&signals);
  for (const int own : {SIGBUS, SIGSEGV, SIGFPE, SIGILL}) sigdelset(&signals, own);
  pthread_sigmask(SIG_BLOCK, &signals, nullptr);
}

void keep_to(std::span<const int> cpus) {
  cpu_set_t mask;
  CPU_ZERO(&mask);
  for (const int cpu : cpus) CPU_SET(cpu, &mask);
  pthread_setaffinity_np(pthread_self(), sizeof(mask), &mask);  // best effort
}

}  // namespace

struct ThreadPool::State {
  std::vector<std::thread> workers;
  int size = 1;
  Status status;

  // The loop being run; written before `generation` is advanced.
  Body* body = nullptr;
  int64_t count = 0;
  int64_t grain = 1;

  alignas(64) std::atomic<uint32_t> generation{0};
  alignas(64) std::atomic<int64_t> next{0};
  // kOpen while workers may join the loop, plus how many are in it. The caller closes it when no
  // piece is left and waits for those inside only: a worker whose core was taken away between two
  // loops holds up nobody.
  alignas(64) std::atomic<uint32_t> gate{0};
  alignas(64) std::atomic<bool> stopping{false};

  void run_pieces(int worker) {
    if (grain == kShrinking) return run_ranges(worker);
    for (;;) {
      const int64_t begin = next.fetch_add(grain, std::memory_order_relaxed);
      if (begin >= count) return;
      (*body)(worker, begin, std::min(begin + grain, count));
    }
  }

  void run_ranges(int worker) {
    int64_t begin = next.load(std::memory_order_relaxed);
    while (begin < count) {
      const int64_t end = begin + std::max<int64_t>(1, (count - begin) / (2 * size));
      if (!next.compare_exchange_weak(begin, end, std::memory_order_relaxed)) continue;
      (*body)(worker, begin, end);
      begin = next.load(std::memory_order_relaxed);
    }
  }

  void worker_loop(int worker) {
    block_foreign_signals();
    uint32_t seen = 0;
    for (;;) {
      for (int spin = 0; spin < kSpins; ++spin) {
        if (generation.load(std::memory_order_acquire) != seen) break;
        pause_cpu();
      }
      generation.wait(seen, std::memory_order_acquire);
      seen = generation.load(std::memory_order_acquire);
      if (stopping.load(std::memory_order_relaxed)) return;
      if (!enter()) continue;
      run_pieces(worker);
      leave();
    }
  }

  bool enter() {
    uint32_t now = gate.load(std::memory_order_relaxed);
    while ((now & kOpen) != 0) {
      if (gate.compare_exchange_weak(now, now + 1, std::memory_order_acquire,
                                     std::memory_order_relaxed)) {
        return true;
      }
    }
    return false;
  }

  void leave() {
    // 1: the gate is closed and this was the last one.
    if (gate.fetch_sub(1, std::memory_order_release) == 1) gate.notify_one();
  }

  void wait_for_workers() {
    gate.fetch_and(~kOpen, std::memory_order_relaxed);
    for (int spin = 0; spin < kSpins + kYields; ++spin) {
      if (gate.load(std::memory_order_acquire) == 0) return;
      if (spin < kSpins) {
        pause_cpu();
      } else {
        std::this_thread::yield();
      }
    }
    for (uint32_t inside = 0; (inside = gate.load(std::memory_order_acquire)) != 0;) {
      gate.wait(inside, std::memory_order_acquire);
    }
  }

  void stop() {
    stopping.store(true, std::memory_order_relaxed);
    generation.fetch_add(1, std::memory_order_release);
    generation.notify_all();
    for (std::thread& worker : workers) worker.join();
    workers.clear();
  }
};

ThreadPool::ThreadPool(ThreadPoolOptions options) : state_(std::make_unique<State>()) {
  const CpuTopology topology = read_cpu_topology();
  state_->size = options.threads > 0 ? options.threads : topology.default_threads();
  std::vector<int> cpus;  // one for each thread; empty: any
  if (options.pin && static_cast<size_t>(state_->size) < topology.cpus.size()) {
    cpus.assign(topology.cpus.begin(), topology.cpus.begin() + state_->size);
  }
  std::string why;
  try {
    state_->workers.reserve(static_cast<size_t>(state_->size - 1));
    for (int worker = 1; worker < state_->size; ++worker) {
      state_->workers.emplace_back([state = state_.get(), worker, cpus] {
        if (!cpus.empty()) keep_to(cpus);
        state->worker_loop(worker);
      });
    }
    return;
  } catch (const std::system_error& error) {
    why = error.code().message();
  } catch (const std::bad_alloc&) {
    why = "out of memory";
  }
  state_->stop();
  state_->status = resource_exhausted(
      fmt::format("cannot start {} threads: {}; give fewer with --threads", state_->size, why));
  state_->size = 1;
}

const Status& ThreadPool::status() const {
  return state_->status;
}

ThreadPool::~ThreadPool() {
  state_->stop();
}

int ThreadPool::size() const {
  return state_->size;
}

void ThreadPool::parallel_for(int64_t count, int64_t grain, Body body) {
  MOTLEY_CHECK(grain > 0, "a piece needs at least one element");
  if (count <= 0) return;
  if (state_->size == 1 || count <= grain) {
    for (int64_t begin = 0; begin < count; begin += grain) {
      body(0, begin, std::min(begin + grain, count));
    }
    return;
  }
  run(count, grain, body);
}

void ThreadPool::parallel_ranges(int64_t count, Body body) {
  if (count <= 0) return;
  if (state_->size == 1 || count == 1) return body(0, 0, count);
  run(count, kShrinking, body);
}

void ThreadPool::run(int64_t count, int64_t grain, Body body) {
  State& state = *state_;
  state.body = &body;
  state.count = count;
  state.grain = grain;
  state.next.store(0, std::memory_order_relaxed);
  state.gate.store(kOpen, std::memory_order_release);
  state.generation.fetch_add(1, std::memory_order_release);
  state.generation.notify_all();
  state.run_pieces(0);
  state.wait_for_workers();
}

}  // namespace motley
