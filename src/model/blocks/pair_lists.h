// The (row, slot) pairs of a step, grouped by the expert they chose.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

namespace motley {

class PairLists {
 public:
  // `experts` [rows * experts_per_token]: the choices; every id in [0, expert_count).
  PairLists(std::span<const int32_t> experts, int expert_count);

  // Experts chosen at least once, ascending.
  std::span<const int32_t> wanted() const { return wanted_; }
  // Pairs that chose `expert`, ascending.
  std::span<const int32_t> pairs_of(int32_t expert) const;

 private:
  std::vector<int32_t> offsets_;  // [expert_count + 1] into pairs_
  std::vector<int32_t> pairs_;
  std::vector<int32_t> wanted_;
};

}  // namespace motley
