#include "base/thread_pool.h"

#include <pthread.h>
#include <sched.h>

#include <algorithm>
#include <atomic>
#include <csignal>
#include <thread>
#include <vector>

#include "base/check.h"
#include "base/cpu_topology.h"

namespace motley {
namespace {

// About 20 to 50 microseconds: longer than the gap between two ops of a step.
constexpr int kSpins = 4000;

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

void pin_to(int cpu) {
  cpu_set_t mask;
  CPU_ZERO(&mask);
  CPU_SET(cpu, &mask);
  pthread_setaffinity_np(pthread_self(), sizeof(mask), &mask);  // best effort
}

}  // namespace

struct ThreadPool::State {
  std::vector<std::thread> workers;
  int size = 1;

  // The loop being run; written before `generation` is advanced.
  Body* body = nullptr;
  int64_t count = 0;
  int64_t grain = 1;

  alignas(64) std::atomic<uint32_t> generation{0};
  alignas(64) std::atomic<int64_t> next{0};
  alignas(64) std::atomic<int> running{0};
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
      run_pieces(worker);
      running.fetch_sub(1, std::memory_order_release);
    }
  }
};

ThreadPool::ThreadPool(ThreadPoolOptions options) : state_(std::make_unique<State>()) {
  const CpuTopology topology = read_cpu_topology();
  state_->size = options.threads > 0 ? options.threads : topology.default_threads();
  const bool pin = options.pin && static_cast<size_t>(state_->size) <= topology.cpus.size();
  for (int worker = 1; worker < state_->size; ++worker) {
    state_->workers.emplace_back(
        [this, worker, pin, cpu = topology.cpus[pin ? static_cast<size_t>(worker) : 0]] {
          if (pin) pin_to(cpu);
          state_->worker_loop(worker);
        });
  }
}

ThreadPool::~ThreadPool() {
  state_->stopping.store(true, std::memory_order_relaxed);
  state_->generation.fetch_add(1, std::memory_order_release);
  state_->generation.notify_all();
  for (std::thread& worker : state_->workers) worker.join();
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
  state.running.store(state.size - 1, std::memory_order_relaxed);
  state.generation.fetch_add(1, std::memory_order_release);
  state.generation.notify_all();
  state.run_pieces(0);
  for (int spin = 0; state.running.load(std::memory_order_acquire) != 0; ++spin) {
    if (spin < kSpins) {
      pause_cpu();
    } else {
      std::this_thread::yield();  // more threads than cores: let the workers run
    }
  }
}

}  // namespace motley
