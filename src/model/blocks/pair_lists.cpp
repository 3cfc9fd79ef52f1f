#include "model/blocks/pair_lists.h"

#include "base/check.h"

namespace motley {

PairLists::PairLists(std::span<const int32_t> experts, int expert_count)
    : offsets_(static_cast<size_t>(expert_count) + 1, 0), pairs_(experts.size()) {
  for (const int32_t expert : experts) {
    MOTLEY_CHECK(expert >= 0 && expert < expert_count, "routing chose an unknown expert");
    ++offsets_[static_cast<size_t>(expert) + 1];
  }
  for (size_t i = 1; i < offsets_.size(); ++i) {
    if (offsets_[i] > 0) wanted_.push_back(static_cast<int32_t>(i - 1));
    offsets_[i] += offsets_[i - 1];
  }
  std::vector<int32_t> next(offsets_.begin(), offsets_.end() - 1);
  for (size_t pair = 0; pair < experts.size(); ++pair) {
    int32_t& slot = next[static_cast<size_t>(experts[pair])];
    pairs_[static_cast<size_t>(slot++)] = static_cast<int32_t>(pair);
  }
}

std::span<const int32_t> PairLists::pairs_of(int32_t expert) const {
  const auto begin = static_cast<size_t>(offsets_[static_cast<size_t>(expert)]);
  const auto end = static_cast<size_t>(offsets_[static_cast<size_t>(expert) + 1]);
  return std::span(pairs_).subspan(begin, end - begin);
}

}  // namespace motley
