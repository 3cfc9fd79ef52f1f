// How many random cases a property test runs.
#pragma once

#include <algorithm>

namespace motley {

// `all` where code runs at its own speed; a quarter where each instruction costs many (sanitizers,
// another processor's emulator), which look for other mistakes than a rare shape.
template <typename Count>
constexpr Count random_cases(Count all) {
#ifdef MOTLEY_SLOW_CODE
  return std::max(Count{1}, all / 4);
#else
  return all;
#endif
}

}  // namespace motley
