#include "model/blocks/dense_mlp.h"

#include <array>

namespace motley {

DenseMlpBlock::DenseMlpBlock(const DenseMlpSpec& spec, const LoadedWeights& weights)
    : gate_(weights.matrix(spec.gate)),
      up_(weights.matrix(spec.up)),
      down_(weights.matrix(spec.down)),
      swiglu_{.limit = spec.swiglu_limit} {}

Status DenseMlpBlock::run(StepContext& context, const Batch& batch, const ConstTensorView& x,
                          const TensorView& out) const {
  const Arena::Scope scope(context.stream.scratch());
  const TensorView gate = context.scratch({batch.rows(), gate_.rows});
  const TensorView up = context.scratch({batch.rows(), up_.rows});
  const std::array targets = {LinearTarget{gate_, gate}, LinearTarget{up_, up}};
  context.ops.linear.linear(context.stream, x, batch.counts, targets);
  context.ops.norm.silu_multiply(context.stream, gate, up, swiglu_, gate);
  const LinearTarget down{down_, out};
  context.ops.linear.linear(context.stream, gate, batch.counts, std::span(&down, 1));
  return all_reduce(context, out);
}

}  // namespace motley
