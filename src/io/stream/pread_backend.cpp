// Reads by a pool of threads of its own: the threads of base/thread_pool.h compute, and a thread
// that waits for a drive must not keep a core from them.
#include <fmt/format.h>
#include <pthread.h>
#include <signal.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <condition_variable>
#include <deque>
#include <mutex>
#include <system_error>
#include <thread>

#include "io/stream/read_backend.h"

namespace motley {
namespace {

// Signals are for the threads of the program that know them. New threads inherit the mask.
class BlockedSignals {
 public:
  BlockedSignals() {
    sigset_t all;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before_);
  }
  ~BlockedSignals() { pthread_sigmask(SIG_SETMASK, &before_, nullptr); }
  BlockedSignals(const BlockedSignals&) = delete;
  BlockedSignals& operator=(const BlockedSignals&) = delete;

 private:
  sigset_t before_{};
};

class PreadBackend final : public ReadBackend {
 public:
  explicit PreadBackend(std::span<const int> descriptors)
      : descriptors_(descriptors.begin(), descriptors.end()) {}
  ~PreadBackend() override {
    {
      const std::lock_guard lock(mutex_);
      stop_ = true;
    }
    work_.notify_all();
    for (std::thread& thread : threads_) thread.join();
  }

  Status start(int threads) {
    const BlockedSignals blocked;
    try {
      for (int i = 0; i < threads; ++i) threads_.emplace_back([this] { run(); });
    } catch (const std::system_error& error) {
      return resource_exhausted(
          fmt::format("cannot start {} threads for reads: {}", threads, error.what()));
    }
    return Status::ok();
  }

  std::string_view name() const override { return "pread"; }
  Status register_buffers(std::span<const std::span<std::byte>>) override {
    return Status::ok();  // pread takes any buffer
  }

  void submit(const RawRead& read) override {
    MOTLEY_CHECK(read.file >= 0 && read.file < static_cast<int>(descriptors_.size()),
                 "a read of an unknown file");
    {
      const std::lock_guard lock(mutex_);
      queue_.push_back(read);
      ++in_flight_;
    }
    work_.notify_one();
  }

  void flush() override {}

  void wait(std::vector<RawCompletion>* completions, int min_count) override {
    std::unique_lock lock(mutex_);
    const auto wanted = static_cast<size_t>(std::clamp(min_count, 0, in_flight_));
    arrived_.wait(lock, [&] { return done_.size() >= wanted; });
    completions->insert(completions->end(), done_.begin(), done_.end());
    in_flight_ -= static_cast<int>(done_.size());
    done_.clear();
  }

 private:
  // Reads that were submitted are done before the threads end.
  void run() {
    std::unique_lock lock(mutex_);
    while (true) {
      work_.wait(lock, [&] { return stop_ || !queue_.empty(); });
      if (queue_.empty()) return;
      const RawRead read = queue_.front();
      queue_.pop_front();
      lock.unlock();
      const ssize_t count = pread(descriptors_[static_cast<size_t>(read.file)], read.into.data(),
                                  read.into.size(), static_cast<off_t>(read.offset));
      const int64_t result = count < 0 ? -errno : static_cast<int64_t>(count);
      lock.lock();
      done_.push_back({read.id, result});
      arrived_.notify_one();
    }
  }

  const std::vector<int> descriptors_;
  std::mutex mutex_;
  std::condition_variable work_;
  std::condition_variable arrived_;
  std::deque<RawRead> queue_;        // protected by mutex_, as is all below but threads_
  std::vector<RawCompletion> done_;  // not yet collected
  int in_flight_ = 0;                // submitted and not yet collected
  bool stop_ = false;
  std::vector<std::thread> threads_;
};

}  // namespace

Result<std::unique_ptr<ReadBackend>> open_pread_backend(std::span<const int> descriptors,
                                                        int threads) {
  MOTLEY_CHECK(threads >= 1 && threads <= 256, "1 to 256 threads");
  auto backend = std::make_unique<PreadBackend>(descriptors);
  MOTLEY_RETURN_IF_ERROR(backend->start(threads));
  return std::unique_ptr<ReadBackend>(std::move(backend));
}

}  // namespace motley
