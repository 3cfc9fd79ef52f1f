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
  // Storage for the keys that the rows of this batch may see: written by layers with an indexer,
  // read by later ones that share the choice. Empty where no layer of the model shares.
  KeySelection selection = {};

  // Scratch in the backend's activation dtype, until the enclosing Arena::Scope ends.
  TensorView scratch(Shape shape) const {
    return scratch_view(stream, ops.activation_dtype, shape);
  }
  KeySelection scratch_selection(int64_t rows, int64_t width) const {
    return {scratch_view(stream, DType::kI32, {rows, width}),
            scratch_view(stream, DType::kI32, {rows})};
  }
};

// Sums a mixer's or feed-forward's partial output over ranks, in place (the identity for one rank).
Status all_reduce(StepContext& context, const TensorView& partial);

}  // namespace motley
