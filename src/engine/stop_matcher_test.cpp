#include "engine/stop_matcher.h"

#include <gtest/gtest.h>

namespace motley {
namespace {

TEST(StopMatcher, FindsAStopAcrossPieces) {
  StopMatcher matcher({"</end>"});
  EXPECT_EQ(matcher.push("hello </e"), "hello ");
  EXPECT_EQ(matcher.push("nd"), "");
  EXPECT_EQ(matcher.push("> more"), "");
  EXPECT_EQ(matcher.matched(), "</end>");
  EXPECT_EQ(matcher.push("x"), "");
  EXPECT_EQ(matcher.finish(), "");
}

TEST(StopMatcher, ReleasesAFalseStart) {
  StopMatcher matcher({"abab!"});
  EXPECT_EQ(matcher.push("xabab"), "x");
  EXPECT_EQ(matcher.push("ab"), "ab");
  EXPECT_EQ(matcher.finish(), "abab");
  EXPECT_FALSE(matcher.matched());
}

TEST(StopMatcher, TheEarliestOfSeveralWins) {
  StopMatcher matcher({"later", "a"});
  EXPECT_EQ(matcher.push("ba later"), "b");
  EXPECT_EQ(matcher.matched(), "a");
}

TEST(StopMatcher, WithoutStopsNothingIsHeldBack) {
  StopMatcher matcher({""});
  EXPECT_EQ(matcher.push("anything"), "anything");
}

}  // namespace
}  // namespace motley
