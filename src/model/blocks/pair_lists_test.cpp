#include "model/blocks/pair_lists.h"

#include <gtest/gtest.h>

namespace motley {
namespace {

TEST(PairLists, GroupsPairsByExpertInOrder) {
  const std::vector<int32_t> experts = {1, 5, 0, 5, 1, 2};
  const PairLists lists(experts, 8);
  EXPECT_EQ(std::vector<int32_t>(lists.wanted().begin(), lists.wanted().end()),
            (std::vector<int32_t>{0, 1, 2, 5}));
  const auto five = lists.pairs_of(5);
  EXPECT_EQ(std::vector<int32_t>(five.begin(), five.end()), (std::vector<int32_t>{1, 3}));
  EXPECT_TRUE(lists.pairs_of(7).empty());
}

TEST(PairLists, NoRowsNoWork) {
  const PairLists lists({}, 4);
  EXPECT_TRUE(lists.wanted().empty());
}

}  // namespace
}  // namespace motley
