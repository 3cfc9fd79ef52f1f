#include "cli/suggestion.h"

#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <algorithm>
#include <vector>

namespace motley {
namespace {

const std::vector<std::string> kKnown = {"--threads", "--temp", "--top-p", "--top-k"};

TEST(Suggestion, DistanceCountsEdits) {
  EXPECT_EQ(edit_distance("", ""), 0U);
  EXPECT_EQ(edit_distance("", "abc"), 3U);
  EXPECT_EQ(edit_distance("abc", "abc"), 0U);
  EXPECT_EQ(edit_distance("abc", "acb"), 1U);  // a swap of neighbours
  EXPECT_EQ(edit_distance("threads", "treads"), 1U);
  EXPECT_EQ(edit_distance("kitten", "sitting"), 3U);
}

TEST(Suggestion, ClosestIsNamedOnlyWhenNear) {
  EXPECT_EQ(closest_name("--treads", kKnown), "--threads");
  EXPECT_EQ(closest_name("--tmep", kKnown), "--temp");
  EXPECT_EQ(closest_name("--top-x", kKnown), "--top-p");  // the first among equals
  EXPECT_FALSE(closest_name("--something-else", kKnown));
  EXPECT_FALSE(closest_name(std::string(5000, 't'), kKnown));
  EXPECT_FALSE(closest_name("x", std::vector<std::string>()));
  EXPECT_EQ(suggestion_for("--thread", kKnown), "; did you mean --threads?");
  EXPECT_EQ(suggestion_for("--zzzzzz", kKnown), "");
}

RC_GTEST_PROP(Suggestion, DistanceIsSymmetricAndBounded, (std::string a, std::string b)) {
  a.resize(std::min<size_t>(a.size(), 20));
  b.resize(std::min<size_t>(b.size(), 20));
  const size_t distance = edit_distance(a, b);
  RC_ASSERT(distance == edit_distance(b, a));
  RC_ASSERT(distance <= std::max(a.size(), b.size()));
  RC_ASSERT((distance == 0) == (a == b));
}

}  // namespace
}  // namespace motley
