#include "model/batch.h"

#include "base/check.h"

namespace motley {

void Batch::clear() {
  tokens.clear();
  segments.clear();
  counts = {};
}

void Batch::add(RowRole role, SequenceState& state, std::span<const int32_t> new_tokens,
                GlobalPosition first) {
  MOTLEY_CHECK(role == RowRole::kPrefill || counts.prefill == 0, "decode rows come first");
  const auto rows = static_cast<int32_t>(new_tokens.size());
  segments.push_back({.rows = {.role = role,
                               .first_row = static_cast<int32_t>(tokens.size()),
                               .rows = rows,
                               .first_position = first},
                      .state = &state});
  tokens.insert(tokens.end(), new_tokens.begin(), new_tokens.end());
  (role == RowRole::kDecode ? counts.decode : counts.prefill) += rows;
}

void Batch::add_tentative(SequenceState& state, std::span<const int32_t> new_tokens,
                          GlobalPosition first) {
  add(RowRole::kDecode, state, new_tokens, first);
  segments.back().is_tentative = true;
}

Status Batch::reserve() {
  for (const BatchSegment& segment : segments) {
    MOTLEY_RETURN_IF_ERROR(
        segment.state->reserve(segment.rows.first_position.value + segment.rows.rows));
  }
  return Status::ok();
}

}  // namespace motley
