// The store of a model whose experts are all in memory.
#pragma once

#include <cstdint>
#include <vector>

#include "experts/expert_store.h"

namespace motley {

class ResidentExpertStore final : public ExpertStore {
 public:
  // layers[i] holds the experts of layer i, by id; empty for layers without experts.
  // `wave_slots` bounds the experts of one wave (0: no bound).
  explicit ResidentExpertStore(std::vector<std::vector<ExpertWeights>> layers, int wave_slots = 0)
      : layers_(std::move(layers)), wave_slots_(wave_slots) {}

  Status for_each_wave(int layer, std::span<const int32_t> wanted, Wave compute,
                       Meanwhile meanwhile) override;

 private:
  std::vector<std::vector<ExpertWeights>> layers_;
  int wave_slots_;
  std::vector<ResolvedExpert> resolved_;  // scratch, kept to avoid allocation in the step loop
};

}  // namespace motley
