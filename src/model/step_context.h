// What a block needs to run: the backend's ops, where they run, and the ranks that share the model.
#pragma once

#include "ops/op_table.h"
#include "tensor/stream.h"
#include "topology/collective.h"
#include "topology/topology.h"

namespace motley {

struct StepContext {
  const OpTable& ops;
  Stream& stream;
  const Topology& topology;
  Collective& collective;

  // Scratch in the backend's activation dtype, until the enclosing Arena::Scope ends.
  TensorView scratch(Shape shape) const {
    return scratch_view(stream, ops.activation_dtype, shape);
  }
};

// Sums a mixer's or feed-forward's partial output over ranks, in place (the identity for one rank).
Status all_reduce(StepContext& context, const TensorView& partial);

}  // namespace motley
