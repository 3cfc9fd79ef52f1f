// Keeps a drive busy while the caller computes.
//
// A ReadScheduler starts the next read only when somebody asks it to. The pump is a thread that
// does so every fraction of a millisecond while reads are outstanding, and keeps what has arrived
// until the caller takes it. A caller with nothing to compute waits in the scheduler itself.
// Reads with a guard (read_guard.h) are inspected by whichever of the two threads sees them arrive.
// Ownership: owns the scheduler. Destruction waits for the reads in flight.
// Thread rule: one caller; buffers of a request are the pump's until its completion was taken.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <memory>
#include <mutex>
#include <span>
#include <thread>
#include <unordered_map>
#include <vector>

#include "base/clock.h"
#include "base/fault_points.h"
#include "experts/read_guard.h"
#include "io/stream/read_scheduler.h"

namespace motley {

class ReadPump {
 public:
  ReadPump(const Clock& clock, FaultPoints& faults, std::unique_ptr<ReadScheduler> reads);
  ~ReadPump();
  ReadPump(const ReadPump&) = delete;
  ReadPump& operator=(const ReadPump&) = delete;

  // Before the first submit(). kResourceExhausted when the system refuses a thread.
  Status start_thread();

  // Begins with the next start() at the latest.
  void submit(uint64_t tag, ReadPriority priority, std::span<const ReadRange> ranges);
  void submit(uint64_t tag, ReadPriority priority, const ReadGuard& guard);
  // Of the files (not empty), the one whose drive has the fewest bytes to read; the first of
  // equals.
  int least_busy(std::span<const int> files) const;
  void start();
  // What has not started becomes more urgent.
  void raise(uint64_t tag, ReadPriority priority);
  // What has not started is dropped; the completion still comes, as kCancelled.
  void cancel(uint64_t tag);
  // What has arrived; with `block`, at least one completion if any request is outstanding.
  std::vector<ReadCompletion> take(bool block);
  ReadStats stats() const;
  GuardStats guard_stats() const;

  // Immutable after construction.
  const std::vector<DirectFile>& files() const { return reads_->files(); }
  std::string_view backend_name() const { return reads_->backend_name(); }
  const std::string& backend_reason() const { return reads_->backend_reason(); }

 private:
  // Completions and the guards of those that have one.
  struct Arrived {
    std::vector<ReadCompletion> completions;
    std::vector<std::pair<size_t, ReadGuard>> guards;  // index of the completion
  };

  void run();
  Arrived take_guards(std::vector<ReadCompletion> completions);
  // Unlocks while it inspects.
  std::vector<ReadCompletion> inspect(Arrived arrived, std::unique_lock<std::mutex>& lock);

  const Clock& clock_;
  FaultPoints& faults_;
  const std::unique_ptr<ReadScheduler> reads_;
  mutable std::mutex mutex_;  // protects the scheduler's state and all below
  std::condition_variable changed_;
  int64_t outstanding_ = 0;  // submitted, completion not taken from the scheduler yet
  bool stop_ = false;
  int inspecting_ = 0;  // arrivals that the thread inspects, not in arrived_ yet
  std::vector<ReadCompletion> arrived_;
  std::unordered_map<uint64_t, ReadGuard> guards_;  // by tag
  GuardStats guard_stats_;
  std::thread thread_;  // last: uses the others
};

}  // namespace motley
