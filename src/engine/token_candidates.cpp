#include "engine/token_candidates.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>

namespace motley {
namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();

// Shares of the likeliest token's weight down to which tokens are collected, one after the other
// until enough are: nearly always the first is enough, and 0 always is.
constexpr std::array<double, 4> kCutoffs = {1e-3, 1e-6, 1e-12, 0};

class Filter {
 public:
  Filter(std::span<const float> logits, const SamplingParams& params, std::vector<int32_t>* kept)
      : logits_(logits), params_(params), kept_(*kept) {}

  void run() {
    kept_.clear();
    highest_ = -kInfinity;
    for (const float logit : logits_) {
      if (logit > highest_) highest_ = logit;
    }
    if (highest_ == -kInfinity) return;
    if (params_.top_k > 0 && params_.top_k < std::ssize(logits_)) {
      take_top_k();
      cut(mass_of_kept());
      return;
    }
    const double mass = params_.top_p < 1 ? mass_of_all() : kInfinity;
    for (const double cutoff : kCutoffs) {
      collect(cutoff > 0 ? highest_ + params_.temperature * std::log(cutoff) : -kInfinity);
      std::sort(kept_.begin(), kept_.end(), [this](int32_t a, int32_t b) { return better(a, b); });
      if (cut(mass)) return;  // what was not collected comes later still
    }
  }

 private:
  double logit(int32_t token) const { return logits_[static_cast<size_t>(token)]; }
  bool better(int32_t a, int32_t b) const {
    return logit(a) != logit(b) ? logit(a) > logit(b) : a < b;
  }
  double weight(double logit) const {
    return logit == highest_ ? 1 : std::exp((logit - highest_) / params_.temperature);
  }

  void collect(double least) {
    kept_.clear();
    for (size_t i = 0; i < logits_.size(); ++i) {
      if (logits_[i] >= least) kept_.push_back(static_cast<int32_t>(i));
    }
  }

  void take_top_k() {
    collect(-kInfinity);
    const auto k = std::min<std::ptrdiff_t>(params_.top_k, std::ssize(kept_));
    std::partial_sort(kept_.begin(), kept_.begin() + k, kept_.end(),
                      [this](int32_t a, int32_t b) { return better(a, b); });
    kept_.resize(static_cast<size_t>(k));
  }

  double mass_of_kept() const {
    double mass = 0;
    for (const int32_t token : kept_) mass += weight(logit(token));
    return mass;
  }
  double mass_of_all() const {
    double mass = 0;
    for (const float logit : logits_) {
      if (logit >= -kInfinity) mass += weight(logit);
    }
    return mass;
  }

  // Leaves of the tokens in order those that top-p and min-p leave; false when further ones could
  // be kept too.
  bool cut(double whole_mass) {
    const double wanted = params_.top_p < 1 ? params_.top_p * whole_mass : kInfinity;
    double mass = 0;
    for (size_t count = 0; count < kept_.size(); ++count) {
      const double next = weight(logit(kept_[count]));
      if ((count > 0 && mass >= wanted) || next < params_.min_p) {
        kept_.resize(count);
        return true;
      }
      mass += next;
    }
    return mass >= wanted;
  }

  std::span<const float> logits_;
  const SamplingParams& params_;
  std::vector<int32_t>& kept_;
  double highest_ = 0;
};

}  // namespace

bool limits_candidates(const SamplingParams& params) {
  return params.top_k > 0 || params.top_p < 1 || params.min_p > 0;
}

void find_candidates(std::span<const float> logits, const SamplingParams& params,
                     std::vector<int32_t>* kept) {
  Filter(logits, params, kept).run();
}

}  // namespace motley
