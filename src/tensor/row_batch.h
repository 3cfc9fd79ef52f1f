// The rows of one step: one row is one token of one sequence.
//
// Rows of a sequence that share a role are adjacent and form a segment. All decode rows come
// before all prefill rows. A row's causal limit is its own position: it sees positions up to and
// including it. What a row computes depends only on its role, its position and the numeric
// profile, never on the other rows of the batch (R5).
#pragma once

#include <cstdint>
#include <span>

namespace motley {

// Verify rows of speculation have the decode role.
enum class RowRole : uint8_t { kDecode, kPrefill };

// Position in the whole sequence, as opposed to an index within one rank's share of the cache.
struct GlobalPosition {
  int64_t value = 0;
  friend auto operator<=>(const GlobalPosition&, const GlobalPosition&) = default;
};

struct RowSegment {
  RowRole role = RowRole::kPrefill;
  int32_t first_row = 0;  // index into the batch
  int32_t rows = 0;
  GlobalPosition first_position;
};

// How many rows of each role, in batch order: decode rows first.
struct RowCounts {
  int64_t decode = 0;
  int64_t prefill = 0;
  int64_t total() const { return decode + prefill; }
};

}  // namespace motley
