#include "experts/read_pump.h"

#include <chrono>
#include <iterator>
#include <utility>

namespace motley {
namespace {

// A drive of 14 GB/s takes this long for 3 MB, a fraction of what is in flight.
constexpr std::chrono::microseconds kPause{200};

}  // namespace

ReadPump::ReadPump(std::unique_ptr<ReadScheduler> reads) : reads_(std::move(reads)) {
  thread_ = std::thread([this] { run(); });
}

ReadPump::~ReadPump() {
  {
    const std::lock_guard lock(mutex_);
    stop_ = true;
  }
  changed_.notify_all();
  thread_.join();
}

void ReadPump::run() {
  std::unique_lock lock(mutex_);
  while (!stop_) {
    if (outstanding_ == 0) {
      changed_.wait(lock);
      continue;
    }
    std::vector<ReadCompletion> arrived = reads_->poll();
    outstanding_ -= std::ssize(arrived);
    std::move(arrived.begin(), arrived.end(), std::back_inserter(arrived_));
    changed_.wait_for(lock, kPause, [this] { return stop_; });
  }
}

void ReadPump::submit(uint64_t tag, ReadPriority priority, std::span<const ReadRange> ranges) {
  {
    const std::lock_guard lock(mutex_);
    reads_->submit(tag, priority, ranges);
    ++outstanding_;
  }
  changed_.notify_all();
}

void ReadPump::raise(uint64_t tag, ReadPriority priority) {
  const std::lock_guard lock(mutex_);
  reads_->raise(tag, priority);
}

std::vector<ReadCompletion> ReadPump::take(bool block) {
  const std::lock_guard lock(mutex_);
  std::vector<ReadCompletion> taken = std::exchange(arrived_, {});
  if (outstanding_ == 0) return taken;
  std::vector<ReadCompletion> more = block && taken.empty() ? reads_->wait() : reads_->poll();
  outstanding_ -= std::ssize(more);
  std::move(more.begin(), more.end(), std::back_inserter(taken));
  return taken;
}

ReadStats ReadPump::stats() const {
  const std::lock_guard lock(mutex_);
  return reads_->stats();
}

}  // namespace motley
