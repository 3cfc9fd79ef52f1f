#include "experts/look_ahead.h"

#include <algorithm>
#include <cmath>

namespace motley {
namespace {

constexpr double kNewGuessWeight = 1.0 / 64;
constexpr double kNewIdleWeight = 1.0 / 32;
// Before anything is known: just enough to be tried.
constexpr double kFirstPrecision = 0.6;

}  // namespace

void LookAhead::expect(int layer, std::span<const int32_t> likely, int per_row) {
  layer_ = layer;
  per_row_ = per_row;
  likely_.assign(likely.begin(), likely.end());
  precision_.resize(std::max(precision_.size(), static_cast<size_t>(per_row)), kFirstPrecision);
}

std::span<const int32_t> LookAhead::chosen(int most, FunctionRef<bool(int32_t)> is_missing) {
  chosen_.clear();
  const auto per_row = static_cast<size_t>(per_row_);
  for (size_t rank = 0; rank < per_row; ++rank) {
    if (precision_[rank] < kLeastPrecision) continue;
    for (size_t at = rank; at < likely_.size(); at += per_row) {
      const int32_t expert = likely_[at];
      if (std::ssize(chosen_) >= most) return chosen_;
      if (!is_missing(expert)) continue;
      if (std::find(chosen_.begin(), chosen_.end(), expert) != chosen_.end()) continue;
      chosen_.push_back(expert);
    }
  }
  return chosen_;
}

int LookAhead::most_reads(int64_t expert_bytes) const {
  const double bytes_per_s = busy_s_ > 0 ? bytes_ / busy_s_ : 0;
  const double experts = idle_s_ * bytes_per_s / static_cast<double>(expert_bytes);
  return static_cast<int>(std::clamp(std::ceil(experts), 1.0, 1e6));
}

void LookAhead::record_drive(int64_t bytes, double busy_s) {
  bytes_ += -kNewIdleWeight * bytes_ + static_cast<double>(bytes - all_bytes_);
  busy_s_ += -kNewIdleWeight * busy_s_ + (busy_s - all_busy_s_);
  all_bytes_ = bytes;
  all_busy_s_ = busy_s;
}

bool LookAhead::check(int layer, std::span<const int32_t> wanted) {
  if (layer != layer_) return false;
  layer_ = -1;
  for (size_t at = 0; at < likely_.size(); ++at) {
    const bool right = std::binary_search(wanted.begin(), wanted.end(), likely_[at]);
    double& precision = precision_[at % static_cast<size_t>(per_row_)];
    precision += kNewGuessWeight * ((right ? 1.0 : 0.0) - precision);
  }
  return true;
}

void LookAhead::record_idle(double seconds) {
  idle_s_ += kNewIdleWeight * (seconds - idle_s_);
}

}  // namespace motley
