// A progress bar on the terminal for work that takes over a second.
//
//   loading   45% [=========>          ]  9.09/20.2 GB  2.27 GB/s  5 s left
//
// Nothing is drawn when the output is not a terminal, nor for work that ends within a second: the
// bar appears once half a second has passed and the end is more than half a second away. finish()
// or the destructor wipes it, so that what follows starts on a clean line.
// Thread rule: advance() from any thread; the rest from the thread that owns the bar.
#pragma once

#include <atomic>
#include <cstdint>
#include <iosfwd>
#include <mutex>
#include <string>

#include "base/clock.h"

namespace motley {

enum class ProgressUnit { kBytes, kItems };

struct ProgressOptions {
  std::string label;
  uint64_t total = 0;  // 0: unknown, then no share and no estimate is shown
  ProgressUnit unit = ProgressUnit::kBytes;
  std::string item_name;  // after the rate of items: "tokens"
};

// Where bars are drawn; width 0 means that it is no terminal.
struct ProgressOutput {
  std::ostream* stream = nullptr;  // borrowed
  int width = 0;
};
// Standard error with its present width.
ProgressOutput stderr_progress_output();

// One line of at most `width` columns for `done` after `elapsed_s` seconds.
std::string format_progress(const ProgressOptions& options, uint64_t done, double elapsed_s,
                            int width);

class ProgressBar {
 public:
  // `clock` outlives the bar.
  ProgressBar(const Clock& clock, ProgressOptions options,
              ProgressOutput output = stderr_progress_output());
  ~ProgressBar();
  ProgressBar(const ProgressBar&) = delete;
  ProgressBar& operator=(const ProgressBar&) = delete;

  void advance(uint64_t amount);
  void finish();

  uint64_t done() const { return done_.load(std::memory_order_relaxed); }

 private:
  bool should_draw(uint64_t done, int64_t now_ns) const;

  const Clock& clock_;
  const ProgressOptions options_;
  const ProgressOutput output_;
  const int64_t start_ns_;
  std::atomic<uint64_t> done_{0};
  std::atomic<int64_t> next_draw_ns_;
  std::mutex drawing_;
  bool drawn_ = false;  // guarded by drawing_
};

}  // namespace motley
