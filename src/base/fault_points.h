// Named places where a test can make the next call fail.
//
// Code that touches the outside world asks `visit("io.read")` first. Nothing is armed in normal
// use; visiting then costs one relaxed load.
// Thread rule: visit from any thread; arm and clear while no other thread visits.
#pragma once

#include <atomic>
#include <cstdint>
#include <map>
#include <mutex>
#include <string>
#include <string_view>

#include "base/status.h"

namespace motley {

class FaultPoints {
 public:
  // The `nth` visit of `point` from now (1 = the next one) fails with `error`, once.
  void arm(std::string point, int64_t nth, Status error);
  void clear();

  Status visit(std::string_view point);

 private:
  struct Armed {
    int64_t remaining;
    Status error;
  };

  std::atomic<bool> any_{false};
  std::mutex mutex_;
  std::map<std::string, Armed, std::less<>> armed_;  // protected by mutex_
};

}  // namespace motley
