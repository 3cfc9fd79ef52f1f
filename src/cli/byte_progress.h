// A progress bar for callbacks of (bytes done, bytes in total), whose total is known with the first
// call only. Thread rule: one thread.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <utility>

#include "base/progress.h"

namespace motley {

class ByteProgress {
 public:
  ByteProgress(const Clock& clock, std::string label) : clock_(clock), label_(std::move(label)) {}

  void operator()(int64_t done, int64_t total) {
    if (bar_ == nullptr) {
      bar_ = std::make_unique<ProgressBar>(
          clock_, ProgressOptions{.label = label_, .total = static_cast<uint64_t>(total)});
    }
    const auto now = static_cast<uint64_t>(done);
    if (now > bar_->done()) bar_->advance(now - bar_->done());
  }

 private:
  const Clock& clock_;
  std::string label_;
  std::unique_ptr<ProgressBar> bar_;
};

}  // namespace motley
