// Where a layer's experts are when they are needed.
//
// Routing results stay tensors; the MoE block hands the store the union of the experts that a step
// chose, and computes in waves over what the store makes available. The order of waves never
// changes a result: pairs are summed by expert id afterwards (R5).
// Thread rule: one step at a time.
#pragma once

#include <cstdint>
#include <span>

#include "base/function_ref.h"
#include "base/status.h"
#include "ops/moe.h"

namespace motley {

struct ResolvedExpert {
  int32_t expert = 0;
  const ExpertWeights* weights = nullptr;  // valid during the wave
};

class ExpertStore {
 public:
  using Wave = FunctionRef<void(std::span<const ResolvedExpert>)>;
  using Meanwhile = FunctionRef<void()>;

  virtual ~ExpertStore() = default;

  // Calls `compute` with disjoint groups that together are exactly `wanted` (distinct, ascending).
  // `meanwhile` is called by a store that reads ahead, at most once and before it waits for
  // anything: the moment to say by expect() what the next layer will probably want.
  // Errors: kIo when an expert cannot be read; `compute` may then have seen only some groups.
  virtual Status for_each_wave(int layer, std::span<const int32_t> wanted, Wave compute,
                               Meanwhile meanwhile) = 0;

  // A guess about a layer that runs soon: the ids that its router would choose now, [rows,
  // per_row], the most likely of a row first. Never changes a result.
  virtual void expect([[maybe_unused]] int layer, [[maybe_unused]] std::span<const int32_t> likely,
                      [[maybe_unused]] int per_row) {}

  // A sweep (layer-major prefill) is about to run `layer` and will want most of its experts of the
  // next one soon after. A hint: reads of layer + 1 may begin, experts of `layer` should stay.
  virtual void begin_sweep_layer([[maybe_unused]] int layer) {}
  // The sweep is over, or was given up.
  virtual void end_sweep() {}
};

}  // namespace motley
