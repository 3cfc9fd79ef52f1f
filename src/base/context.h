// What a running motley depends on, passed by reference from main() downwards.
//
// There is no global mutable state: two contexts are two independent engines. Members are in
// dependency order; later ones may use earlier ones.
// Thread rule: the references may be shared; each member states its own rule.
#pragma once

#include "base/clock.h"
#include "base/fault_points.h"
#include "base/log.h"
#include "base/thread_pool.h"

namespace motley {

struct Context {
  Clock& clock;
  Logger& log;
  FaultPoints& faults;
  ThreadPool& threads;
};

// A context together with what it refers to, for programs and tests.
class OwnedContext {
 public:
  explicit OwnedContext(ThreadPoolOptions options = {}, LogOptions log = {})
      : log_(log), threads_(options) {}
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
