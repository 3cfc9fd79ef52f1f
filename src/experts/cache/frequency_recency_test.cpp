#include "experts/cache/frequency_recency.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "experts/cache/expert_cache.h"

namespace motley {
namespace {

using Wanted = std::vector<int32_t>;
constexpr CacheShape kShape{.layers = 2, .experts = 64, .slots = 32, .floor = 2};

void use(EvictionPolicy& policy, int layer, const Wanted& wanted) {
  policy.step(layer, wanted, std::vector<uint8_t>(wanted.size(), 0));
}

TEST(FrequencyRecency, MoreOftenIsWorthMoreAndAgeTakesItAway) {
  FrequencyRecency policy(kShape);
  for (int i = 0; i < 3; ++i) use(policy, 0, {1});
  use(policy, 0, {2});
  EXPECT_LT(policy.key(0, 2), policy.key(0, 1)) << "three uses against the latest one";
  EXPECT_LT(policy.key(0, 3), policy.key(0, 2)) << "never used";
  for (int i = 0; i < 1000; ++i) use(policy, 0, {5});
  use(policy, 0, {2});
  EXPECT_LT(policy.key(0, 1), policy.key(0, 2)) << "long ago";
}

// The clock of one layer is no other's: a layer that runs more often is not hotter for it.
TEST(FrequencyRecency, LayersCompareByUsesPerStep) {
  FrequencyRecency policy(kShape);
  for (int i = 0; i < 600; ++i) use(policy, 0, {i % 2});
  for (int i = 0; i < 300; ++i) use(policy, 1, {0, 1 + i % 7});
  const auto shared = [&](int layer, int expert) {
    return policy.shared_score(layer, policy.key(layer, expert));
  };
  EXPECT_GT(shared(1, 0), shared(0, 0)) << "every step against every second";
  EXPECT_GT(shared(0, 0), shared(1, 1)) << "every second against every seventh";
}

TEST(FrequencyRecency, AnEvictedExpertIsRemembered) {
  const CacheShape shape{.layers = 1, .experts = 16, .slots = 2, .floor = 1};
  ExpertCache cache(shape, make_frequency_recency(shape));
  for (int i = 0; i < 8; ++i) cache.plan(0, Wanted{0});
  for (int i = 0; i < 6; ++i) cache.plan(0, Wanted{1});
  cache.plan(0, Wanted{2, 3});
  EXPECT_EQ(cache.slot_of(0, 0), std::nullopt);
  cache.plan(0, Wanted{0});
  cache.plan(0, Wanted{4});
  EXPECT_TRUE(cache.slot_of(0, 0).has_value()) << "older uses count at its return";
}

TEST(FrequencyRecency, GhostsChooseTheRuleThatHits) {
  const CacheShape shape{.layers = 1, .experts = 64, .slots = 16, .floor = 2};
  const auto loop = make_frequency_recency(shape);
  for (int i = 0; i < 2000; ++i) use(*loop, 0, {i % 64});
  EXPECT_TRUE(FrequencyRecency::kRules[loop->rule()].probation) << loop->rule();
  EXPECT_GT(loop->generation(), 0U);

  const auto local = make_frequency_recency(shape);  // each expert a few times, then long not
  for (int i = 0; i < 4000; ++i) use(*local, 0, {(i / 40 * 5 + i % 12) % 64});
  EXPECT_LE(FrequencyRecency::kRules[local->rule()].half_life, 32) << local->rule();
}

TEST(FrequencyRecency, HeatIsUsesPerStep) {
  FrequencyRecency policy(kShape);
  for (int i = 0; i < 400; ++i) use(policy, 0, i % 4 == 0 ? Wanted{1, 9} : Wanted{1});
  const std::vector<float> heat = policy.heat();
  EXPECT_NEAR(heat[kShape.index(0, 1)], 1, 1e-5);
  EXPECT_NEAR(heat[kShape.index(0, 9)], 0.25, 0.01);
  EXPECT_EQ(heat[kShape.index(0, 2)], 0);
  EXPECT_EQ(heat[kShape.index(1, 1)], 0);
}

TEST(FrequencyRecency, HeatGoesOnWhereItWasSaved) {
  FrequencyRecency first(kShape);
  for (int i = 0; i < 400; ++i) use(first, 0, i % 4 == 0 ? Wanted{1, 9} : Wanted{1});
  FrequencyRecency second(kShape);
  const uint64_t generation = second.generation();
  second.set_heat(first.heat());
  EXPECT_NE(second.generation(), generation);
  EXPECT_LT(second.key(0, 9), second.key(0, 1));
  EXPECT_LT(second.key(0, 2), second.key(0, 9));
  const std::vector<float> before = first.heat();
  const std::vector<float> after = second.heat();
  for (size_t i = 0; i < before.size(); ++i) EXPECT_NEAR(after[i], before[i], 1e-5) << i;
  for (int i = 0; i < 3000; ++i) use(second, 0, {2});
  EXPECT_LT(second.key(0, 1), second.key(0, 2)) << "old heat cools";
}

TEST(FrequencyRecency, ASweepCountsAsUse) {
  FrequencyRecency policy(kShape);
  for (int i = 0; i < 5; ++i) policy.record(0, Wanted{3});
  use(policy, 0, {4});
  EXPECT_LT(policy.key(0, 4), policy.key(0, 3));
}

TEST(FrequencyRecency, StepsLargerThanAGhostAreLeftOut) {
  const CacheShape shape{.layers = 1, .experts = 64, .slots = 4, .floor = 2};
  FrequencyRecency policy(shape);
  Wanted all(64);
  for (int32_t i = 0; i < 64; ++i) all[static_cast<size_t>(i)] = i;
  for (int i = 0; i < 500; ++i) use(policy, 0, all);
  EXPECT_EQ(policy.rule(), FrequencyRecency::kFirstRule);
}

}  // namespace
}  // namespace motley
