#include "model/blocks/tentative_rows.h"

namespace motley {
namespace {

// How many entries of `width` elements the ring of a layer has.
int64_t entries_of(const SequenceState& state, int layer, StateKind kind, int64_t width,
                   DType dtype) {
  const StateEntry* entry = state.layout().find(layer, kind);
  MOTLEY_CHECK(entry != nullptr, "tentative rows of a layer without a ring in the layout");
  return entry->fixed_bytes / (width * dtype_bytes(dtype));
}

}  // namespace

DeltaRing replay_ring(SequenceState& state, int layer, const DeltaRingWidths& widths, DType dtype) {
  const int64_t width = widths.keys + widths.updates + widths.factors;
  const int64_t entries = entries_of(state, layer, StateKind::kReplayRing, width, dtype);
  std::byte* next = state.fixed(layer, StateKind::kReplayRing);
  const auto take = [&](int64_t cols) {
    const TensorView view = make_view(next, dtype, {entries, cols});
    next += entries * cols * dtype_bytes(dtype);
    return view;
  };
  DeltaRing ring;
  ring.keys = take(widths.keys);
  ring.updates = take(widths.updates);
  ring.factors = take(widths.factors);
  return ring;
}

TensorView window_ring(SequenceState& state, int layer, int64_t channels, DType dtype) {
  const int64_t entries = entries_of(state, layer, StateKind::kWindowRing, channels, dtype);
  return make_view(state.fixed(layer, StateKind::kWindowRing), dtype, {entries, channels});
}

}  // namespace motley
