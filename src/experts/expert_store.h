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

  virtual ~ExpertStore() = default;

  // Calls `compute` with disjoint groups that together are exactly `wanted` (distinct, ascending).
  // Errors: kIo when an expert cannot be read; `compute` may then have seen only some groups.
  virtual Status for_each_wave(int layer, std::span<const int32_t> wanted, Wave compute) = 0;

  // A sweep (layer-major prefill) is about to run `layer` and will want most of its experts of the
  // next one soon after. A hint: reads of layer + 1 may begin, experts of `layer` should stay.
  virtual void begin_sweep_layer([[maybe_unused]] int layer) {}
  // The sweep is over, or was given up.
  virtual void end_sweep() {}
};

}  // namespace motley
