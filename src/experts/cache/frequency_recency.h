// motley's eviction policy: decayed frequency, with the decay that would have served best.
//
// An expert's score is the logarithm of the sum over its past uses of 2^(-age / half-life), age in
// steps of its layer; evicted experts keep theirs. A short half-life is recency (near LRU), a long
// one frequency (near LFU, but it forgets). No single one is right: which is depends on the text
// and on how many slots there are. So ghost caches (ghost_cache.h) of some layers replay the same
// routes under each rule, and the rule that hits most decides from then on. One rule, "probation",
// counts a use that had to load the expert only once the expert is used again: experts that come
// once leave first, and a loop longer than the cache keeps a part of itself instead of pushing
// itself out. Over layers, scores compare as they are: each is about uses per step of its own
// layer. Cost of a step: O(wanted x rules); ghosts add O(wanted x rules x log slots) on sampled
// layers. Thread rule: one thread.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "experts/cache/eviction_policy.h"
#include "experts/cache/ghost_cache.h"

namespace motley {

struct FrequencyRecencyOptions {
  int ghost_layers = 8;          // at most, and at least 3; spread over the model
  double ghost_memory = 1024;    // steps after which a ghost's hits count half
  double switch_margin = 0.003;  // hit rate by which another rule must be better
};

class FrequencyRecency final : public EvictionPolicy {
 public:
  struct Rule {
    double half_life = 1;  // steps of a layer
    bool probation = false;
  };
  static constexpr std::array<Rule, 5> kRules = {
      {{2, false}, {32, false}, {256, false}, {4096, false}, {4096, true}}};
  static constexpr size_t kFirstRule = 2;    // before anything is known
  static constexpr size_t kSlowestRule = 3;  // whose scores are the heat

  explicit FrequencyRecency(const CacheShape& shape, const FrequencyRecencyOptions& options = {});

  std::string_view name() const override { return "motley"; }
  void step(int layer, std::span<const int32_t> wanted, std::span<const uint8_t> hit) override;
  void record(int layer, std::span<const int32_t> wanted) override;
  EvictionKey key(int layer, int expert) const override;
  double shared_score(int layer, const EvictionKey& key) const override;
  uint64_t generation() const override { return generation_; }

  size_t rule() const { return rule_; }

  // Uses per step of every expert, in [0, 1], by shape index: what a heat file holds.
  std::vector<float> heat() const;
  // Starts from such heat instead of from nothing. REQUIRES: as many values as experts; nothing has
  // been used yet.
  void set_heat(std::span<const float> uses_per_step);

 private:
  struct Expert {
    std::array<double, kRules.size()> score;  // log2, at step 0 of the layer
    double loaded_score = 0;                  // of probation: without a use that loaded it
    int64_t tie = 0;
  };
  void use(Expert& expert, int64_t now, bool loads);
  // before[i]: the slowest score of wanted[i] without this step.
  void run_ghosts(int layer, std::span<const int32_t> wanted, std::span<const double> before);
  static EvictionKey key_by(size_t rule, const Expert& expert, double probation_score);
  void choose_rule();
  static double weight_of(double steps, double half_life);

  CacheShape shape_;
  FrequencyRecencyOptions options_;
  std::vector<Expert> experts_;
  std::vector<int64_t> steps_;      // by layer
  int64_t uses_ = 0;                // steps of all layers
  std::vector<GhostCache> ghosts_;  // by rule, of the sampled layers together
  int samples_ = 0;
  std::vector<int> sample_of_layer_;  // its place in the ghosts, -1: none
  std::vector<double> before_;
  bool has_old_heat_ = false;
  std::array<double, kRules.size()> ghost_hits_{};
  double ghost_uses_ = 0;
  int64_t ghost_steps_ = 0;
  size_t rule_ = kFirstRule;
  uint64_t generation_ = 0;
};

std::unique_ptr<FrequencyRecency> make_frequency_recency(const CacheShape& shape);

}  // namespace motley
