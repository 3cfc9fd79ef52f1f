// The gated unit of feed-forwards: silu(gate) * up.
// Source of the limit: the configuration key swiglu_limit of models that have it.
#pragma once

#include <limits>

namespace motley {

inline constexpr float kNoSwigluLimit = std::numeric_limits<float>::infinity();

struct SwigluParams {
  // gate <- min(gate, limit), up <- clamp(up, -limit, limit) before the product. The gate has no
  // lower clamp. Positive; infinity leaves both as they are, bit for bit.
  float limit = kNoSwigluLimit;

  bool is_limited() const { return limit != kNoSwigluLimit; }
};

}  // namespace motley
