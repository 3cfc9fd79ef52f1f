// A context together with what it refers to, for programs and tests.
#pragma once

#include "base/clock.h"
#include "base/context.h"
#include "base/fault_points.h"
#include "base/log.h"
#include "base/thread_pool.h"

namespace motley {

class OwnedContext {
 public:
  explicit OwnedContext(ThreadPoolOptions options = {}, LogOptions log = {})
      : log_(log), threads_(options) {}
  // What went wrong in starting; to be looked at before get() where many threads may be asked for.
  const Status& status() const { return threads_.status(); }
  Context& get() { return context_; }
  FaultPoints& faults() { return faults_; }

 private:
  SteadyClock clock_;
  Logger log_;
  FaultPoints faults_;
  ThreadPool threads_;
  Context context_{clock_, log_, faults_, threads_};
};

}  // namespace motley
