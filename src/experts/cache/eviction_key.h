// What an expert in a slot is worth, as an eviction policy sees it.
// Thread rule: values.
#pragma once

#include <cstdint>

namespace motley {

// The lowest leaves first: by score, then by tie.
struct EvictionKey {
  double score = 0;
  int64_t tie = 0;

  friend bool operator<(const EvictionKey& a, const EvictionKey& b) {
    return a.score != b.score ? a.score < b.score : a.tie < b.tie;
  }
  friend bool operator==(const EvictionKey& a, const EvictionKey& b) = default;
};

}  // namespace motley
