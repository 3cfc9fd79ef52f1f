// Plain gated feed-forward: down(silu(gate x) * (up x)).
#pragma once

#include "io/loader.h"
#include "model/batch.h"
#include "model/step_context.h"
#include "spec/model_spec.h"

namespace motley {

class DenseMlpBlock {
 public:
  DenseMlpBlock(const DenseMlpSpec& spec, const LoadedWeights& weights);

  // out [rows, hidden] from x [rows, hidden].
  Status run(StepContext& context, const Batch& batch, const ConstTensorView& x,
             const TensorView& out) const;

 private:
  WeightMatrix gate_;
  WeightMatrix up_;
  WeightMatrix down_;
  SwigluParams swiglu_;
};

}  // namespace motley
