// The rows of one step together with the sequences they belong to.
// Ownership: refers to sequence states, which outlive the step.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "base/status.h"
#include "state/sequence_state.h"
#include "tensor/row_batch.h"

namespace motley {

struct BatchSegment {
  RowSegment rows;
  SequenceState* state = nullptr;
  // Decode rows that may be rolled back: nothing of them becomes state until Decoder::commit.
  // Cached keys and values are written, and do not count beyond the sequence's length.
  bool is_tentative = false;
};

struct Batch {
  std::vector<int32_t> tokens;  // one per row
  std::vector<BatchSegment> segments;
  RowCounts counts;

  int64_t rows() const { return counts.total(); }
  void clear();

  // Appends rows that continue `state` at `first`. All decode segments come before all prefill
  // segments; each sequence appears once.
  void add(RowRole role, SequenceState& state, std::span<const int32_t> new_tokens,
           GlobalPosition first);
  // Decode rows that stay tentative until they are committed, some or none of them.
  void add_tentative(SequenceState& state, std::span<const int32_t> new_tokens,
                     GlobalPosition first);

  // Makes room in every sequence for its rows. kResourceExhausted leaves every sequence as it was,
  // apart from spare pages.
  Status reserve();
};

}  // namespace motley
