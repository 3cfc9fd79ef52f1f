// A fixed set of worker threads for data-parallel loops.
//
// The caller's thread is worker 0. Workers spin briefly between loops (a decode step has hundreds
// of them a few microseconds apart), then sleep. A loop ends when its pieces are done: a worker
// that comes too late for one is not waited for. Which worker runs which piece is not fixed, so a
// body's result must not depend on the worker (R5).
// Thread rule: parallel_for from one thread at a time; bodies must not call it again.
#pragma once

#include <cstdint>
#include <memory>

#include "base/function_ref.h"
#include "base/status.h"

namespace motley {

struct ThreadPoolOptions {
  int threads = 0;  // 0: one per physical core that this process may use
  bool pin = true;  // keep all to as many cores as threads (physical first); each may move there
};

class ThreadPool {
 public:
  using Body = FunctionRef<void(int worker, int64_t begin, int64_t end)>;

  explicit ThreadPool(ThreadPoolOptions options = {});
  ~ThreadPool();
  ThreadPool(const ThreadPool&) = delete;
  ThreadPool& operator=(const ThreadPool&) = delete;

  // kResourceExhausted when the system refused a thread; the pool then has the caller's alone.
  const Status& status() const;
  int size() const;

  // Cuts [0, count) into pieces of at most `grain` and runs them all; returns when done.
  void parallel_for(int64_t count, int64_t grain, Body body);

  // The same in ranges that shrink: each is half of an even share of what is left, at least one.
  // A worker stays with neighbours in memory for long, and all end at nearly the same time.
  void parallel_ranges(int64_t count, Body body);

 private:
  void run(int64_t count, int64_t grain, Body body);

  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace motley
