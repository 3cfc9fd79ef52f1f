#include "experts/look_ahead.h"

#include <gmock/gmock.h>

namespace motley {
namespace {

using testing::ElementsAre;
using Ids = std::vector<int32_t>;

constexpr auto kAlways = [](int32_t) { return true; };

Ids chosen_of(LookAhead& look_ahead, const Ids& likely, int per_row, int most) {
  look_ahead.expect(1, likely, per_row);
  const auto chosen = look_ahead.chosen(most, kAlways);
  return {chosen.begin(), chosen.end()};
}

TEST(LookAhead, TakesTheLikeliestOfEveryRowOnce) {
  LookAhead look_ahead;
  const Ids two_rows = {7, 3, 5, 3, 7, 9};
  EXPECT_THAT(chosen_of(look_ahead, two_rows, 3, 100), ElementsAre(7, 3, 5, 9));
  EXPECT_THAT(chosen_of(look_ahead, two_rows, 3, 2), ElementsAre(7, 3));
  look_ahead.expect(1, two_rows, 3);
  EXPECT_THAT(look_ahead.chosen(2, [](int32_t expert) { return expert > 6; }), ElementsAre(7, 9));
}

TEST(LookAhead, ReadsOnlyRanksThatAreRightMoreOftenThanNot) {
  LookAhead look_ahead;
  for (int step = 0; step < 200; ++step) {
    look_ahead.expect(2, Ids{4, 6, 8}, 3);
    // Rank 0 comes true always, rank 1 in a quarter of the steps, rank 2 in three quarters.
    Ids wanted = {4};
    if (step % 4 == 0) wanted.push_back(6);
    if (step % 4 != 0) wanted.push_back(8);
    EXPECT_TRUE(look_ahead.check(2, wanted));
  }
  EXPECT_NEAR(look_ahead.precision(0), 1, 0.05);
  EXPECT_NEAR(look_ahead.precision(1), 0.25, 0.05);
  EXPECT_NEAR(look_ahead.precision(2), 0.75, 0.05);
  EXPECT_THAT(chosen_of(look_ahead, {1, 2, 3}, 3, 100), ElementsAre(1, 3));
}

TEST(LookAhead, LearnsFromTheGuessedLayerOnly) {
  LookAhead look_ahead;
  EXPECT_FALSE(look_ahead.check(0, Ids{1}));
  look_ahead.expect(3, Ids{1}, 1);
  const double before = look_ahead.precision(0);
  EXPECT_FALSE(look_ahead.check(2, Ids{1}));
  EXPECT_EQ(look_ahead.precision(0), before);
  EXPECT_TRUE(look_ahead.check(3, Ids{1}));
  EXPECT_GT(look_ahead.precision(0), before);
  EXPECT_FALSE(look_ahead.check(3, Ids{1})) << "once per guess";
}

TEST(LookAhead, ReadsNoMoreThanFitsTheIdleTime) {
  LookAhead look_ahead;
  EXPECT_EQ(look_ahead.most_reads(1 << 20), 1) << "nothing is known yet";
  int64_t bytes = 0;
  double busy_s = 0;
  for (int step = 0; step < 300; ++step) {
    bytes += 4'000'000;  // 4 GB/s
    busy_s += 1e-3;
    look_ahead.record_drive(bytes, busy_s);
    look_ahead.record_idle(2e-3);
  }
  EXPECT_NEAR(look_ahead.idle_s(), 2e-3, 1e-5);
  EXPECT_EQ(look_ahead.most_reads(1'770'000), 5);  // 8 MB
  for (int step = 0; step < 300; ++step) {
    bytes += 1'000'000;  // a slower drive from now on
    busy_s += 1e-3;
    look_ahead.record_drive(bytes, busy_s);
  }
  EXPECT_EQ(look_ahead.most_reads(1'770'000), 2);
}

}  // namespace
}  // namespace motley
