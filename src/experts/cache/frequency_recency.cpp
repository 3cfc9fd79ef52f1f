#include "experts/cache/frequency_recency.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "base/check.h"

namespace motley {
namespace {

constexpr double kNever = -std::numeric_limits<double>::infinity();
constexpr int64_t kStepsPerChoice = 32;   // of one sampled layer
constexpr double kHeatSteps = 512;        // what loaded heat counts as
constexpr double kLeastGhostUses = 1024;  // before the first choice

// log2(2^a + 2^b) for a <= b and finite b.
double log_sum(double a, double b) {
  const double gap = a - b;
  return gap < -50 ? b : b + std::log2(1 + std::exp2(gap));
}

}  // namespace

FrequencyRecency::FrequencyRecency(const CacheShape& shape, const FrequencyRecencyOptions& options)
    : shape_(shape), options_(options) {
  Expert unused;
  unused.score.fill(kNever);
  unused.loaded_score = kNever;
  experts_.assign(shape.size(), unused);
  steps_.assign(static_cast<size_t>(shape.layers), 0);
  sample_of_layer_.assign(static_cast<size_t>(shape.layers), -1);
  // A fifth of the layers keeps the ghosts' share of a step small; one alone would share nothing.
  samples_ = std::min(std::clamp(shape.layers / 5, 3, options.ghost_layers), shape.layers);
  for (int i = 0; i < samples_; ++i) {
    const int layer = (2 * i + 1) * shape.layers / (2 * samples_);
    sample_of_layer_[static_cast<size_t>(layer)] = i;
  }
  const auto slots = static_cast<int>(int64_t{shape.slots} * samples_ / shape.layers);
  ghosts_.assign(kRules.size(), GhostCache(samples_, shape.experts, slots, shape.floor));
}

void FrequencyRecency::use(Expert& expert, int64_t now, bool loads) {
  const double before = expert.score[kSlowestRule];
  for (size_t i = 0; i < kRules.size(); ++i) {
    if (kRules[i].probation) continue;
    expert.score[i] = log_sum(expert.score[i], static_cast<double>(now) / kRules[i].half_life);
  }
  expert.loaded_score = loads ? std::floor(before) : expert.score[kSlowestRule];
  expert.tie = uses_;
}

EvictionKey FrequencyRecency::key_by(size_t rule, const Expert& expert, double probation_score) {
  // On probation the newest leaves first, or a loop would push itself out.
  if (kRules[rule].probation) return {probation_score, -expert.tie};
  return {expert.score[rule], expert.tie};
}

EvictionKey FrequencyRecency::key(int layer, int expert) const {
  const Expert& each = experts_[shape_.index(layer, expert)];
  return key_by(rule_, each, each.loaded_score);
}

double FrequencyRecency::shared_score(int layer, const EvictionKey& key) const {
  return key.score -
         static_cast<double>(steps_[static_cast<size_t>(layer)]) / kRules[rule_].half_life;
}

void FrequencyRecency::step(int layer, std::span<const int32_t> wanted,
                            std::span<const uint8_t> hit) {
  const int64_t now = ++steps_[static_cast<size_t>(layer)];
  ++uses_;
  const int sampled = sample_of_layer_[static_cast<size_t>(layer)];
  before_.clear();
  for (size_t i = 0; i < wanted.size(); ++i) {
    Expert& expert = experts_[shape_.index(layer, wanted[i])];
    before_.push_back(expert.score[kSlowestRule]);
    use(expert, now, hit[i] == 0);
  }
  if (sampled >= 0) run_ghosts(layer, wanted, before_);
}

void FrequencyRecency::record(int layer, std::span<const int32_t> wanted) {
  const int64_t now = ++steps_[static_cast<size_t>(layer)];
  ++uses_;
  for (const int32_t expert : wanted) use(experts_[shape_.index(layer, expert)], now, false);
}

void FrequencyRecency::run_ghosts(int layer, std::span<const int32_t> wanted,
                                  std::span<const double> before) {
  const int place = sample_of_layer_[static_cast<size_t>(layer)];
  const auto samples = static_cast<double>(samples_);
  const double keep = std::exp2(-1 / (options_.ghost_memory * samples));
  // Ghosts compare layers as if all had taken as many steps.
  const double shift =
      static_cast<double>(ghost_steps_ / samples_ - steps_[static_cast<size_t>(layer)]);
  std::array<int, kRules.size()> hits{};
  for (size_t rule = 0; rule < kRules.size(); ++rule) {
    const auto key_of = [&](size_t i, bool was_in) {
      const Expert& expert = experts_[shape_.index(layer, wanted[i])];
      const EvictionKey key =
          key_by(rule, expert, was_in ? expert.score[kSlowestRule] : std::floor(before[i]));
      return EvictionKey{key.score + shift / kRules[rule].half_life, key.tie};
    };
    hits[rule] = ghosts_[rule].step(place, wanted, key_of);
    if (hits[rule] < 0) return;  // too large for any of them
  }
  for (size_t rule = 0; rule < kRules.size(); ++rule) {
    ghost_hits_[rule] = ghost_hits_[rule] * keep + hits[rule];
  }
  ghost_uses_ = ghost_uses_ * keep + static_cast<double>(wanted.size());
  const auto due = kStepsPerChoice * int64_t{samples_};
  if (++ghost_steps_ % due == 0 && ghost_uses_ >= kLeastGhostUses) choose_rule();
}

void FrequencyRecency::choose_rule() {
  const auto best = static_cast<size_t>(std::max_element(ghost_hits_.begin(), ghost_hits_.end()) -
                                        ghost_hits_.begin());
  if (ghost_hits_[best] - ghost_hits_[rule_] <= options_.switch_margin * ghost_uses_) return;
  rule_ = best;
  ++generation_;
}

// The sum of 2^(-age / half_life) over `steps` steps.
double FrequencyRecency::weight_of(double steps, double half_life) {
  return (1 - std::exp2(-steps / half_life)) / (1 - std::exp2(-1 / half_life));
}

std::vector<float> FrequencyRecency::heat() const {
  const double half_life = kRules[kSlowestRule].half_life;
  std::vector<float> rates(experts_.size());
  for (int layer = 0; layer < shape_.layers; ++layer) {
    const auto steps = static_cast<double>(steps_[static_cast<size_t>(layer)]);
    double weight = weight_of(steps, half_life);
    if (has_old_heat_) {
      weight += weight_of(kHeatSteps, half_life) * std::exp2(-steps / half_life);
    }
    for (int expert = 0; expert < shape_.experts; ++expert) {
      const size_t index = shape_.index(layer, expert);
      const double count = std::exp2(experts_[index].score[kSlowestRule] - steps / half_life);
      rates[index] = count > 0 ? static_cast<float>(std::min(1.0, count / weight)) : 0.0F;
    }
  }
  return rates;
}

void FrequencyRecency::set_heat(std::span<const float> uses_per_step) {
  MOTLEY_CHECK(uses_per_step.size() == experts_.size() && uses_ == 0,
               "heat is set once, for every expert, before the first use");
  for (size_t index = 0; index < experts_.size(); ++index) {
    Expert& expert = experts_[index];
    const double rate = uses_per_step[index];
    for (size_t i = 0; i < kRules.size(); ++i) {
      expert.score[i] = std::log2(rate * weight_of(kHeatSteps, kRules[i].half_life));
    }
    expert.loaded_score = expert.score[kSlowestRule];
  }
  has_old_heat_ = true;
  ++generation_;
}

std::unique_ptr<FrequencyRecency> make_frequency_recency(const CacheShape& shape) {
  return std::make_unique<FrequencyRecency>(shape);
}

}  // namespace motley
