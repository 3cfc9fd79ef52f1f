// The number of a token; never negative in a valid sequence.
#pragma once

#include <cstdint>

namespace motley {

using TokenId = int32_t;

// Ids in a tokenizer.json stay below this, so tables indexed by id stay small.
inline constexpr TokenId kTokenIdLimit = 1 << 22;

}  // namespace motley
