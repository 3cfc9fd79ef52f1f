#include "experts/read_pump.h"

#include <fmt/format.h>
#include <pthread.h>
#include <signal.h>

#include <algorithm>
#include <chrono>
#include <iterator>
#include <system_error>
#include <utility>

namespace motley {
namespace {

// A drive of 14 GB/s takes this long for 3 MB, a fraction of what is in flight.
constexpr std::chrono::microseconds kPause{200};

}  // namespace

ReadPump::ReadPump(const Clock& clock, FaultPoints& faults, std::unique_ptr<ReadScheduler> reads)
    : clock_(clock), faults_(faults), reads_(std::move(reads)) {}

Status ReadPump::start_thread() {
  try {
    thread_ = std::thread([this] { run(); });
  } catch (const std::system_error& error) {
    return resource_exhausted(
        fmt::format("cannot start the thread that keeps reads going: {}", error.what()));
  }
  return Status::ok();
}

ReadPump::~ReadPump() {
  {
    const std::lock_guard lock(mutex_);
    stop_ = true;
  }
  changed_.notify_all();
  if (thread_.joinable()) thread_.join();
}

void ReadPump::run() {
  // Signals are for the threads of the program that know them.
  sigset_t signals;
  sigfillset(&signals);
  pthread_sigmask(SIG_BLOCK, &signals, nullptr);
  std::unique_lock lock(mutex_);
  while (!stop_) {
    if (outstanding_ == 0) {
      changed_.wait(lock);
      continue;
    }
    Arrived arrived = take_guards(reads_->poll());
    if (!arrived.guards.empty()) {
      inspecting_ = static_cast<int>(arrived.completions.size());
      std::vector<ReadCompletion> inspected = inspect(std::move(arrived), lock);
      std::move(inspected.begin(), inspected.end(), std::back_inserter(arrived_));
      inspecting_ = 0;
      changed_.notify_all();
      continue;  // others arrived meanwhile
    }
    std::move(arrived.completions.begin(), arrived.completions.end(), std::back_inserter(arrived_));
    changed_.wait_for(lock, kPause, [this] { return stop_; });
  }
}

ReadPump::Arrived ReadPump::take_guards(std::vector<ReadCompletion> completions) {
  outstanding_ -= std::ssize(completions);
  Arrived arrived{.completions = std::move(completions), .guards = {}};
  if (guards_.empty()) return arrived;
  for (size_t i = 0; i < arrived.completions.size(); ++i) {
    const auto guard = guards_.find(arrived.completions[i].tag);
    if (guard == guards_.end()) continue;
    arrived.guards.emplace_back(i, guard->second);
    guards_.erase(guard);
  }
  return arrived;
}

std::vector<ReadCompletion> ReadPump::inspect(Arrived arrived, std::unique_lock<std::mutex>& lock) {
  if (arrived.guards.empty()) return std::move(arrived.completions);
  lock.unlock();
  GuardStats stats;
  for (const auto& [index, guard] : arrived.guards) {
    Status& status = arrived.completions[index].status;
    status = inspect_read(guard, reads_->files(), std::move(status), clock_, faults_, &stats);
  }
  lock.lock();
  guard_stats_ += stats;
  return std::move(arrived.completions);
}

void ReadPump::submit(uint64_t tag, ReadPriority priority, std::span<const ReadRange> ranges) {
  const std::lock_guard lock(mutex_);
  reads_->submit(tag, priority, ranges);
  ++outstanding_;
}

void ReadPump::start() {
  {
    const std::lock_guard lock(mutex_);
    reads_->start();
  }
  changed_.notify_all();
}

void ReadPump::submit(uint64_t tag, ReadPriority priority, const ReadGuard& guard) {
  const std::lock_guard lock(mutex_);
  guards_[tag] = guard;
  reads_->submit(tag, priority, {&guard.range, 1});
  ++outstanding_;
}

int ReadPump::least_busy(std::span<const int> files) const {
  const std::lock_guard lock(mutex_);
  return *std::min_element(files.begin(), files.end(), [this](int a, int b) {
    return reads_->outstanding_bytes(a) < reads_->outstanding_bytes(b);
  });
}

void ReadPump::raise(uint64_t tag, ReadPriority priority) {
  const std::lock_guard lock(mutex_);
  reads_->raise(tag, priority);
}

void ReadPump::cancel(uint64_t tag) {
  const std::lock_guard lock(mutex_);
  reads_->cancel(tag);
}

std::vector<ReadCompletion> ReadPump::take(bool block) {
  std::unique_lock lock(mutex_);
  // What has arrived and is being inspected comes before what is still on its way.
  while (block && arrived_.empty() && inspecting_ > 0) changed_.wait(lock);
  std::vector<ReadCompletion> taken = std::exchange(arrived_, {});
  if (outstanding_ == 0) return taken;
  std::vector<ReadCompletion> more =
      inspect(take_guards(block && taken.empty() ? reads_->wait() : reads_->poll()), lock);
  std::move(more.begin(), more.end(), std::back_inserter(taken));
  return taken;
}

ReadStats ReadPump::stats() const {
  const std::lock_guard lock(mutex_);
  return reads_->stats();
}

GuardStats ReadPump::guard_stats() const {
  const std::lock_guard lock(mutex_);
  return guard_stats_;
}

}  // namespace motley
