// A fixed set of worker threads for data-parallel loops.
//
// The caller's thread is worker 0. Workers spin briefly between loops (a decode step has hundreds
// of them a few microseconds apart), then sleep. Which worker runs which piece is not fixed, so a
// body's result must not depend on the worker (R5).
// Thread rule: parallel_for from one thread at a time; bodies must not call it again.
#pragma once

#include <cstdint>
#include <memory>

#include "base/function_ref.h"

namespace motley {

struct ThreadPoolOptions {
  int threads = 0;  // 0: one per physical core that this process may use
  bool pin = true;  // keep each worker on its own core (physical cores first)
};

class ThreadPool {
 public:
  using Body = FunctionRef<void(int worker, int64_t begin, int64_t end)>;

  explicit ThreadPool(ThreadPoolOptions options = {});
  ~ThreadPool();
  ThreadPool(const ThreadPool&) = delete;
  ThreadPool& operator=(const ThreadPool&) = delete;

  int size() const;

  // Cuts [0, count) into pieces of at most `grain` and runs them all; returns when done.
  void parallel_for(int64_t count, int64_t grain, Body body);

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace motley
