// Where tentative rows of a linear-attention layer leave what they would do to its state: the rings
// of the state layout. Both must be there (StateFormat::tentative_rows).
// Thread rule: pure functions over one sequence's state.
#pragma once

#include "ops/gated_delta.h"
#include "state/sequence_state.h"

namespace motley {

// Elements of one entry.
struct DeltaRingWidths {
  int64_t keys = 0;
  int64_t updates = 0;
  int64_t factors = 0;
};
DeltaRing replay_ring(SequenceState& state, int layer, const DeltaRingWidths& widths, DType dtype);

TensorView window_ring(SequenceState& state, int layer, int64_t channels, DType dtype);

}  // namespace motley
