// Keeps a drive busy while the caller computes.
//
// A ReadScheduler starts the next read only when somebody asks it to. The pump is a thread that
// does so every fraction of a millisecond while reads are outstanding, and keeps what has arrived
// until the caller takes it. A caller with nothing to compute waits in the scheduler itself.
// Ownership: owns the scheduler. Destruction waits for the reads in flight.
// Thread rule: one caller; buffers of a request are the pump's until its completion was taken.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <memory>
#include <mutex>
#include <span>
#include <thread>
#include <vector>

#include "io/stream/read_scheduler.h"

namespace motley {

class ReadPump {
 public:
  explicit ReadPump(std::unique_ptr<ReadScheduler> reads);
  ~ReadPump();
  ReadPump(const ReadPump&) = delete;
  ReadPump& operator=(const ReadPump&) = delete;

  void submit(uint64_t tag, ReadPriority priority, std::span<const ReadRange> ranges);
  // What has not started becomes more urgent.
  void raise(uint64_t tag, ReadPriority priority);
  // What has arrived; with `block`, at least one completion if any request is outstanding.
  std::vector<ReadCompletion> take(bool block);
  ReadStats stats() const;

  // Immutable after construction.
  const std::vector<DirectFile>& files() const { return reads_->files(); }
  std::string_view backend_name() const { return reads_->backend_name(); }
  const std::string& backend_reason() const { return reads_->backend_reason(); }

 private:
  void run();

  const std::unique_ptr<ReadScheduler> reads_;
  mutable std::mutex mutex_;  // protects the scheduler's state and all below
  std::condition_variable changed_;
  int64_t outstanding_ = 0;  // submitted, completion not taken from the scheduler yet
  bool stop_ = false;
  std::vector<ReadCompletion> arrived_;
  std::thread thread_;  // last: uses the others
};

}  // namespace motley
