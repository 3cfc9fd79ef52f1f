// Time as an injected dependency, so that schedulers and limits can run in a simulation.
#pragma once

#include <cstdint>

namespace motley {

class Clock {
 public:
  virtual ~Clock() = default;
  // Monotonic, from an arbitrary origin.
  virtual int64_t now_ns() const = 0;
};

class SteadyClock final : public Clock {
 public:
  int64_t now_ns() const override;
};

// Advances only when told to.
class ManualClock final : public Clock {
 public:
  int64_t now_ns() const override { return now_ns_; }
  void advance_ns(int64_t nanoseconds) { now_ns_ += nanoseconds; }

 private:
  int64_t now_ns_ = 0;
};

inline double seconds_since(const Clock& clock, int64_t start_ns) {
  return static_cast<double>(clock.now_ns() - start_ns) * 1e-9;
}

}  // namespace motley
