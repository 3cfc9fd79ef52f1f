#include "base/progress.h"

#include <fmt/format.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <iostream>
#include <utility>

namespace motley {
namespace {

constexpr int64_t kFirstDrawNs = 500'000'000;
constexpr int64_t kDrawEveryNs = 100'000'000;
constexpr double kShortestRestS = 0.5;
constexpr int kMaxWidth = 100;
constexpr int kMinBar = 10;

struct Scale {
  double divisor;
  std::string_view suffix;
};

Scale scale_of(ProgressUnit unit, double value) {
  constexpr std::array<Scale, 4> kBytes = {{{1e12, "TB"}, {1e9, "GB"}, {1e6, "MB"}, {1e3, "kB"}}};
  constexpr std::array<Scale, 2> kItems = {{{1e9, "G"}, {1e6, "M"}}};
  if (unit == ProgressUnit::kBytes) {
    for (const Scale& scale : kBytes) {
      if (value >= scale.divisor) return scale;
    }
    return {1, "B"};
  }
  for (const Scale& scale : kItems) {
    if (value >= scale.divisor) return scale;
  }
  return {1, ""};
}

// Three digits that matter: 0.52, 9.1, 231.
std::string short_number(double value) {
  if (value >= 100 || value == std::floor(value)) return fmt::format("{:.0f}", value);
  return value >= 10 ? fmt::format("{:.1f}", value) : fmt::format("{:.2f}", value);
}

std::string duration(double seconds) {
  const auto whole = static_cast<int64_t>(std::ceil(std::min(seconds, 359'999.0)));
  if (whole < 60) return fmt::format("{} s", whole);
  if (whole < 3600) return fmt::format("{}:{:02} min", whole / 60, whole % 60);
  return fmt::format("{}:{:02} h", whole / 3600, whole % 3600 / 60);
}

std::string amounts(const ProgressOptions& options, uint64_t done) {
  const auto largest = static_cast<double>(std::max(options.total, done));
  const Scale scale = scale_of(options.unit, largest);
  const std::string gap = scale.suffix.empty() ? "" : " ";
  std::string text = short_number(static_cast<double>(done) / scale.divisor);
  if (options.total > 0) {
    text += "/" + short_number(static_cast<double>(options.total) / scale.divisor);
  }
  return text + gap + std::string(scale.suffix);
}

std::string rate_text(const ProgressOptions& options, double per_second) {
  const Scale scale = scale_of(options.unit, per_second);
  const std::string unit = options.unit == ProgressUnit::kBytes
                               ? std::string(scale.suffix)
                               : std::string(scale.suffix) + options.item_name;
  return fmt::format("{} {}/s", short_number(per_second / scale.divisor), unit);
}

std::string bar_of(double share, int columns) {
  const int filled = static_cast<int>(share * columns);
  std::string bar(static_cast<size_t>(columns), ' ');
  std::fill_n(bar.begin(), filled, '=');
  if (filled < columns) bar[static_cast<size_t>(filled)] = '>';
  return "[" + bar + "]";
}

}  // namespace

ProgressOutput stderr_progress_output() {
  winsize size{};
  if (isatty(STDERR_FILENO) == 0) return {&std::cerr, 0};
  const bool known = ioctl(STDERR_FILENO, TIOCGWINSZ, &size) == 0 && size.ws_col > 0;
  return {&std::cerr, known ? size.ws_col : 80};
}

std::string format_progress(const ProgressOptions& options, uint64_t done, double elapsed_s,
                            int width) {
  const double per_second = elapsed_s > 0 ? static_cast<double>(done) / elapsed_s : 0;
  std::string tail = "  " + amounts(options, done);
  if (per_second > 0) tail += "  " + rate_text(options, per_second);
  std::string line = options.label;
  if (options.total > 0) {
    const uint64_t inside = std::min(done, options.total);
    const double share = static_cast<double>(inside) / static_cast<double>(options.total);
    if (per_second > 0) {
      tail += "  " + duration(static_cast<double>(options.total - inside) / per_second) + " left";
    }
    line += fmt::format("  {:3.0f}%", std::floor(100 * share));
    const int room = std::min(width, kMaxWidth) - static_cast<int>(line.size() + tail.size()) - 3;
    if (room >= kMinBar) line += " " + bar_of(share, room);
  }
  line += tail;
  line.resize(std::min(line.size(), static_cast<size_t>(std::max(width, 0))));
  return line;
}

ProgressBar::ProgressBar(const Clock& clock, ProgressOptions options, ProgressOutput output)
    : clock_(clock),
      options_(std::move(options)),
      output_(output),
      start_ns_(clock.now_ns()),
      next_draw_ns_(start_ns_ + kFirstDrawNs) {}

ProgressBar::~ProgressBar() {
  finish();
}

bool ProgressBar::should_draw(uint64_t done, int64_t now_ns) const {
  if (drawn_ || options_.total == 0) return true;
  if (done >= options_.total) return false;
  const double elapsed_s = static_cast<double>(now_ns - start_ns_) * 1e-9;
  const double rest = static_cast<double>(options_.total - done);
  return rest * elapsed_s > kShortestRestS * static_cast<double>(done);
}

void ProgressBar::advance(uint64_t amount) {
  const uint64_t done = done_.fetch_add(amount, std::memory_order_relaxed) + amount;
  if (output_.width <= 0) return;
  const int64_t now_ns = clock_.now_ns();
  if (now_ns < next_draw_ns_.load(std::memory_order_relaxed)) return;
  // Whoever finds another thread drawing goes on with its work.
  const std::unique_lock lock(drawing_, std::try_to_lock);
  if (!lock || now_ns < next_draw_ns_.load(std::memory_order_relaxed)) return;
  next_draw_ns_.store(now_ns + kDrawEveryNs, std::memory_order_relaxed);
  if (!should_draw(done, now_ns)) return;
  const double elapsed_s = static_cast<double>(now_ns - start_ns_) * 1e-9;
  // One column stays free: a full line would wrap on some terminals.
  *output_.stream << '\r' << format_progress(options_, done, elapsed_s, output_.width - 1)
                  << "\x1b[K" << std::flush;
  drawn_ = true;
}

void ProgressBar::finish() {
  const std::lock_guard lock(drawing_);
  if (drawn_) *output_.stream << "\r\x1b[K" << std::flush;
  drawn_ = false;
}

}  // namespace motley
