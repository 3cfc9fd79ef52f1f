#include "experts/cache/expert_cache.h"

#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <algorithm>
#include <numeric>
#include <set>

#include "experts/cache/frequency_recency.h"

namespace motley {
namespace {

using Wanted = std::vector<int32_t>;

ExpertCache lru_cache(const CacheShape& shape) {
  return {shape, make_lru_policy(shape)};
}

Wanted evicted_by(const CachePlan& plan) {
  Wanted experts;
  for (const SlotAssignment& each : plan.experts) {
    if (each.evicted) experts.push_back(each.evicted->expert);
  }
  return experts;
}

TEST(ExpertCache, EmptySlotsAreTakenFirstAndHitsStay) {
  ExpertCache cache = lru_cache({.layers = 1, .experts = 8, .slots = 4, .floor = 2});
  EXPECT_EQ(cache.empty_slots(), 4);
  const CachePlan first = cache.plan(0, Wanted{1, 5});
  EXPECT_EQ(first.hits, 0);
  EXPECT_EQ(first.experts[0].slot, 0);
  EXPECT_EQ(first.experts[1].slot, 1);
  EXPECT_EQ(cache.empty_slots(), 2);
  const CachePlan second = cache.plan(0, Wanted{5, 6});
  EXPECT_EQ(second.hits, 1);
  EXPECT_TRUE(second.experts[0].hit);
  EXPECT_EQ(second.experts[0].slot, 1);
  EXPECT_EQ(second.evictions, 0);
  EXPECT_EQ(cache.slot_of(0, 1), 0);
  EXPECT_EQ(cache.slot_of(0, 7), std::nullopt);
}

TEST(ExpertCache, TheLeastRecentlyUsedLeaves) {
  ExpertCache cache = lru_cache({.layers = 1, .experts = 8, .slots = 3, .floor = 1});
  cache.plan(0, Wanted{0});
  cache.plan(0, Wanted{1});
  cache.plan(0, Wanted{2});
  cache.plan(0, Wanted{0});
  EXPECT_EQ(evicted_by(cache.plan(0, Wanted{3})), Wanted{1});
  EXPECT_EQ(evicted_by(cache.plan(0, Wanted{1})), Wanted{2});
  EXPECT_EQ(cache.counts().uses, 6);
  EXPECT_EQ(cache.counts().hits, 1);
  EXPECT_EQ(cache.counts().evictions, 2);
}

TEST(ExpertCache, ALayerKeepsItsFloorAgainstOthers) {
  ExpertCache cache = lru_cache({.layers = 2, .experts = 8, .slots = 6, .floor = 2});
  cache.plan(0, Wanted{0, 1, 2});
  for (int i = 0; i < 20; ++i) cache.plan(1, Wanted{i % 7, 7});
  EXPECT_EQ(cache.resident(0), 2);
  EXPECT_EQ(cache.resident(1), 4);
  // Its own experts, a layer at its floor may replace.
  EXPECT_EQ(cache.plan(0, Wanted{4, 5}).evictions, 2);
  EXPECT_GE(cache.resident(1), 2);
}

TEST(ExpertCache, AStepBeyondTheFloorsTakesWhatIsLeft) {
  ExpertCache cache = lru_cache({.layers = 3, .experts = 8, .slots = 8, .floor = 2});
  EXPECT_EQ(cache.largest_step(), 4);
  for (int layer = 0; layer < 3; ++layer) cache.plan(layer, Wanted{0, 1});
  const CachePlan plan = cache.plan(0, Wanted{0, 1, 2, 3, 4, 5, 6, 7});
  EXPECT_EQ(plan.hits, 2);
  EXPECT_EQ(plan.evictions, 4);
  EXPECT_EQ(cache.resident(0), 8);
  EXPECT_EQ(cache.plan(1, Wanted{3}).evictions, 1);
}

TEST(ExpertCache, SlotsBeyondAllExpertsAreNotMade) {
  ExpertCache cache = lru_cache({.layers = 2, .experts = 3, .slots = 100, .floor = 1});
  EXPECT_EQ(cache.shape().slots, 6);
  cache.plan(0, Wanted{0, 1, 2});
  cache.plan(1, Wanted{0, 1, 2});
  EXPECT_EQ(cache.empty_slots(), 0);
  EXPECT_EQ(cache.plan(0, Wanted{0, 1, 2}).hits, 3);
}

TEST(ExpertCache, ASweepTeachesHeatAndAdmitsNothing) {
  const CacheShape shape{.layers = 1, .experts = 8, .slots = 2, .floor = 1};
  ExpertCache cache(shape, make_lfu_policy(shape));
  cache.plan(0, Wanted{0});
  cache.plan(0, Wanted{1});
  for (int i = 0; i < 5; ++i) cache.record_only(0, Wanted{0, 7});
  EXPECT_EQ(cache.slot_of(0, 7), std::nullopt);
  EXPECT_EQ(cache.counts().uses, 2);
  EXPECT_EQ(evicted_by(cache.plan(0, Wanted{7})), Wanted{1});
}

TEST(ExpertCache, WhatIsReadAheadTakesTheColdestSlot) {
  const CacheShape shape{.layers = 2, .experts = 8, .slots = 4, .floor = 1};
  ExpertCache cache(shape, make_lfu_policy(shape));
  const auto empty = cache.admit_ahead(1, 3);
  ASSERT_TRUE(empty.has_value());
  EXPECT_FALSE(empty->evicted.has_value());
  EXPECT_EQ(cache.admit_ahead(1, 3), std::nullopt) << "it is in a slot";
  EXPECT_EQ(cache.plan(1, Wanted{3}).hits, 1);
  cache.plan(0, Wanted{0, 1, 2});
  cache.plan(1, Wanted{3});
  cache.plan(0, Wanted{0, 2});
  cache.plan(1, Wanted{3});  // nothing of layer 0 is held any more
  EXPECT_EQ(cache.admit_ahead(1, 4)->evicted, (CachedExpert{0, 1}));
  EXPECT_EQ(cache.counts().taken_ahead, 2);
}

TEST(ExpertCache, WhatIsReadAheadLeavesTheStepBeingComputed) {
  const CacheShape shape{.layers = 2, .experts = 8, .slots = 4, .floor = 1};
  ExpertCache cache(shape, make_lfu_policy(shape));
  cache.plan(0, Wanted{0, 1, 2, 3});
  EXPECT_EQ(cache.admit_ahead(1, 4), std::nullopt);
  cache.release(0, 2);
  EXPECT_TRUE(cache.admit_ahead(1, 4).has_value());
}

TEST(ExpertCache, AFailedReadEmptiesItsSlot) {
  ExpertCache cache = lru_cache({.layers = 1, .experts = 8, .slots = 2, .floor = 1});
  const int32_t slot = cache.plan(0, Wanted{4}).experts[0].slot;
  cache.set_pinned(0, 4, true);
  cache.release(0, 4);
  cache.release(0, 4);
  EXPECT_EQ(cache.slot_of(0, 4), std::nullopt);
  EXPECT_EQ(cache.empty_slots(), 2);
  EXPECT_EQ(cache.resident(0), 0);
  const CachePlan plan = cache.plan(0, Wanted{4});
  EXPECT_FALSE(plan.experts[0].hit);
  EXPECT_EQ(plan.experts[0].slot, slot);
}

TEST(ExpertCache, APinnedExpertKeepsItsSlot) {
  ExpertCache cache = lru_cache({.layers = 1, .experts = 8, .slots = 3, .floor = 1});
  cache.plan(0, Wanted{0});
  cache.set_pinned(0, 0, true);
  for (int32_t i = 1; i < 8; ++i) cache.plan(0, Wanted{i});
  EXPECT_TRUE(cache.slot_of(0, 0).has_value());
  EXPECT_EQ(cache.plan(0, Wanted{0}).hits, 1) << "it can be used";
  cache.set_pinned(0, 0, false);
  cache.plan(0, Wanted{1, 2});
  cache.plan(0, Wanted{3, 4});
  EXPECT_EQ(cache.slot_of(0, 0), std::nullopt);
}

TEST(ExpertCache, ShapesThatCannotWorkAreRefusedWithTheArithmetic) {
  const Status status = check_cache_shape({.layers = 40, .experts = 256, .slots = 319, .floor = 8});
  EXPECT_EQ(status.code(), StatusCode::kResourceExhausted);
  EXPECT_EQ(status.message(), "expert cache: 319 slots, but 40 layers with a floor of 8 need 320");
  EXPECT_TRUE(check_cache_shape({.layers = 40, .experts = 256, .slots = 320, .floor = 8}).is_ok());
  EXPECT_FALSE(check_cache_shape({.layers = 0, .experts = 4, .slots = 9, .floor = 1}).is_ok());
  EXPECT_FALSE(check_cache_shape({.layers = 1, .experts = 4, .slots = 9, .floor = 5}).is_ok());
  EXPECT_FALSE(
      check_cache_shape({.layers = 1 << 20, .experts = 1 << 20, .slots = 9, .floor = 1}).is_ok());
}

// The rule of the header by a scan over everything, held against the heaps.
class Model {
 public:
  explicit Model(const ExpertCache& cache) : cache_(cache), shape_(cache.shape()) {}

  // The slots of `layer` and those above their floor may lose one; `kept` may not.
  std::optional<CachedExpert> victim(int layer, const std::set<int32_t>& kept) const {
    std::optional<CachedExpert> lowest;
    EvictionKey lowest_key;
    for (int i = -1; i < shape_.layers; ++i) {  // own first: it wins ties
      const int each = i < 0 ? layer : i;
      if (i == layer || (i >= 0 && cache_.resident(each) <= shape_.floor)) continue;
      for (int expert = 0; expert < shape_.experts; ++expert) {
        if (!cache_.slot_of(each, expert) || (each == layer && kept.count(expert) > 0)) continue;
        EvictionKey key = cache_.policy().key(each, expert);
        key.score = cache_.policy().shared_score(each, key);
        if (lowest && !(key < lowest_key)) continue;
        lowest = {each, expert};
        lowest_key = key;
      }
    }
    return lowest;
  }

 private:
  const ExpertCache& cache_;
  CacheShape shape_;
};

void check_bijection(const ExpertCache& cache) {
  std::set<int32_t> slots;
  int resident = 0;
  for (int layer = 0; layer < cache.shape().layers; ++layer) {
    int of_layer = 0;
    for (int expert = 0; expert < cache.shape().experts; ++expert) {
      const auto slot = cache.slot_of(layer, expert);
      if (!slot) continue;
      ++of_layer;
      RC_ASSERT(*slot >= 0 && *slot < cache.shape().slots);
      RC_ASSERT(slots.insert(*slot).second);
    }
    RC_ASSERT(of_layer == cache.resident(layer));
    resident += of_layer;
  }
  RC_ASSERT(resident + cache.empty_slots() == cache.shape().slots);
}

RC_GTEST_PROP(ExpertCacheProperty, TheFirstVictimIsTheLowestAndFloorsHold, ()) {
  CacheShape shape;
  shape.layers = *rc::gen::inRange(1, 5);
  shape.experts = *rc::gen::inRange(2, 12);
  shape.floor = *rc::gen::inRange(1, std::min(4, shape.experts + 1));
  shape.slots = shape.layers * shape.floor + *rc::gen::inRange(0, 12);
  const int kind = *rc::gen::inRange(0, 3);
  ExpertCache cache(shape, kind == 0   ? make_lru_policy(shape)
                           : kind == 1 ? make_lfu_policy(shape)
                                       : make_frequency_recency(shape));
  shape = cache.shape();
  const Model model(cache);
  for (int step = 0; step < 60; ++step) {
    const int layer = *rc::gen::inRange(0, shape.layers);
    const int chosen = *rc::gen::inRange(0, 1 << shape.experts);
    Wanted wanted;
    for (int32_t expert = 0; expert < shape.experts; ++expert) {
      if ((chosen >> expert & 1) != 0) wanted.push_back(expert);
    }
    wanted.resize(std::min(wanted.size(), static_cast<size_t>(cache.largest_step())));
    std::set<int32_t> kept(wanted.begin(), wanted.end());
    std::vector<int> before(static_cast<size_t>(shape.layers));
    for (int i = 0; i < shape.layers; ++i) before[static_cast<size_t>(i)] = cache.resident(i);
    const auto expected = model.victim(layer, kept);
    const CachePlan plan = cache.plan(layer, wanted);
    for (size_t i = 0; i < wanted.size(); ++i) {
      RC_ASSERT(plan.experts[i].expert == wanted[i]);
      RC_ASSERT(cache.slot_of(layer, wanted[i]) == plan.experts[i].slot);
    }
    for (int i = 0; i < shape.layers; ++i) {
      RC_ASSERT(i == layer ||
                cache.resident(i) >= std::min(before[static_cast<size_t>(i)], shape.floor));
    }
    const auto first = std::find_if(plan.experts.begin(), plan.experts.end(),
                                    [](const auto& each) { return each.evicted.has_value(); });
    if (first != plan.experts.end()) RC_ASSERT(first->evicted == expected);
    check_bijection(cache);
    if (*rc::gen::inRange(0, 4) == 0) cache.release(layer, *rc::gen::inRange(0, shape.experts));
    if (*rc::gen::inRange(0, 4) == 0) {
      cache.admit_ahead(*rc::gen::inRange(0, shape.layers), *rc::gen::inRange(0, shape.experts));
    }
  }
}

}  // namespace
}  // namespace motley
