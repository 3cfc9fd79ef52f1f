#include "experts/cache/heat_file.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <limits>

#include "base/hash.h"
#include "experts/cache/expert_cache.h"
#include "experts/cache/frequency_recency.h"
#include "experts/cache/little_endian.h"
#include "experts/cache/synthetic_routes.h"
#include "support/test_files.h"

namespace motley {
namespace {

HeatTable some_heat() {
  return {"a model", 0x1234, 2, 3, {0.5F, 0, 1, 0.25F, 0.5F, 0.125F}};
}

class HeatFileTest : public testing::Test {
 protected:
  std::string path() const { return folder_ / "heat"; }
  std::vector<std::byte> saved(const HeatTable& heat) {
    EXPECT_TRUE(save_heat(faults_, path(), heat).is_ok());
    return folder_.read("heat");
  }

  FaultPoints faults_;
  TemporaryDirectory folder_;
};

TEST_F(HeatFileTest, WhatIsSavedIsLoaded) {
  ASSERT_TRUE(save_heat(faults_, path(), some_heat()).is_ok());
  const auto heat = load_heat(faults_, path());
  ASSERT_TRUE(heat.is_ok()) << heat.status().message();
  EXPECT_EQ(heat->model, "a model");
  EXPECT_EQ(heat->uses_per_step, some_heat().uses_per_step);
  EXPECT_TRUE(check_heat_is_of(*heat, 2, 3, 0x1234).is_ok());
  EXPECT_FALSE(check_heat_is_of(*heat, 2, 3, 0x1235).is_ok());
  EXPECT_FALSE(check_heat_is_of(*heat, 3, 2, 0x1234).is_ok());
}

TEST_F(HeatFileTest, TheHottestComeFirst) {
  const std::vector<CachedExpert> expected = {{0, 2}, {0, 0}, {1, 1}, {1, 0}, {1, 2}};
  EXPECT_EQ(some_heat().hottest(99), expected);
  EXPECT_EQ(some_heat().hottest(2).size(), 2U);
  EXPECT_TRUE(some_heat().hottest(0).empty());
}

TEST_F(HeatFileTest, AnyChangedOrMissingByteIsNoticed) {
  const std::vector<std::byte> bytes = saved(some_heat());
  for (size_t i = 0; i < bytes.size(); ++i) {
    std::vector<std::byte> changed = bytes;
    changed[i] ^= std::byte{0x20};
    EXPECT_FALSE(parse_heat(changed).is_ok()) << i;
    EXPECT_FALSE(parse_heat(std::span(bytes).first(i)).is_ok()) << i;
  }
  std::vector<std::byte> longer = bytes;
  longer.push_back(std::byte{0});
  EXPECT_EQ(parse_heat(longer).status().code(), StatusCode::kCorrupt);
}

// Right checksums over wrong contents.
TEST_F(HeatFileTest, HostileFilesAreRefused) {
  const auto sealed = [](uint32_t version, uint32_t layers, uint32_t experts, std::string_view name,
                         std::initializer_list<uint32_t> rates) {
    std::vector<std::byte> bytes;
    append_text(bytes, "MTLEHEAT");
    for (const uint32_t field : {version, layers, experts}) append_little(bytes, field);
    append_little(bytes, static_cast<uint32_t>(name.size()));
    append_little(bytes, uint64_t{7});
    append_text(bytes, name);
    for (const uint32_t rate : rates) append_little(bytes, rate);
    append_little(bytes, hash_bytes(bytes));
    return parse_heat(bytes).status();
  };
  constexpr uint32_t kHalf = 0x3F000000;
  EXPECT_TRUE(sealed(1, 1, 2, "m", {kHalf, 0}).is_ok());
  EXPECT_EQ(sealed(2, 1, 1, "m", {kHalf}).code(), StatusCode::kUnsupported);
  EXPECT_EQ(sealed(1, 1, 1, "m", {0x7FC00000}).code(), StatusCode::kCorrupt) << "not a number";
  EXPECT_EQ(sealed(1, 1, 1, "m", {0xBF000000}).code(), StatusCode::kCorrupt) << "negative";
  EXPECT_EQ(sealed(1, 1, 1, "m", {0x40000000}).code(), StatusCode::kCorrupt) << "two";
  EXPECT_FALSE(sealed(1, 0, 1, "m", {}).is_ok());
  EXPECT_FALSE(sealed(1, 0x80000000, 0x80000000, "m", {}).is_ok()) << "the product overflows";
  EXPECT_FALSE(sealed(1, 1, 1, "\n", {kHalf}).is_ok());
}

TEST_F(HeatFileTest, ATableThatCannotBeReadIsNotWritten) {
  HeatTable heat = some_heat();
  heat.uses_per_step[2] = std::numeric_limits<float>::quiet_NaN();
  EXPECT_FALSE(save_heat(faults_, path(), heat).is_ok());
  heat = some_heat();
  heat.uses_per_step.pop_back();
  EXPECT_FALSE(save_heat(faults_, path(), heat).is_ok());
  EXPECT_FALSE(std::filesystem::exists(path()));
  EXPECT_EQ(load_heat(faults_, path()).status().code(), StatusCode::kNotFound);
}

TEST_F(HeatFileTest, AFailedSaveLeavesTheOldFile) {
  ASSERT_TRUE(save_heat(faults_, path(), some_heat()).is_ok());
  for (const char* point : {"io.open", "io.write", "io.publish"}) {
    HeatTable other = some_heat();
    other.model = "other";
    faults_.arm(point, 1, io_error("injected"));
    EXPECT_EQ(save_heat(faults_, path(), other).code(), StatusCode::kIo) << point;
    EXPECT_EQ(load_heat(faults_, path())->model, "a model") << point;
  }
}

// The purpose: a second run starts with the experts of the first.
TEST_F(HeatFileTest, AWarmStartHitsFromTheFirstToken) {
  const RouteTrace trace =
      make_synthetic_routes({.layers = 4, .experts = 64, .top = 4, .tokens = 600}).value();
  const CacheShape shape{.layers = 4, .experts = 64, .slots = 64, .floor = 4};
  const auto hits_of = [&](ExpertCache& cache, int64_t first, int64_t end) {
    const int64_t before = cache.counts().hits;
    for (int64_t token = first; token < end; ++token) {
      for (int layer = 0; layer < 4; ++layer) {
        const auto ids = trace.of(token, layer);
        std::vector<int32_t> wanted(ids.begin(), ids.end());
        std::sort(wanted.begin(), wanted.end());
        cache.plan(layer, wanted);
      }
    }
    return cache.counts().hits - before;
  };
  auto learning = make_frequency_recency(shape);
  const FrequencyRecency& learned = *learning;
  ExpertCache first(shape, std::move(learning));
  hits_of(first, 0, 500);
  ASSERT_TRUE(save_heat(faults_, path(), {"m", 7, 4, 64, learned.heat()}).is_ok());

  ExpertCache cold(shape, make_frequency_recency(shape));
  const HeatTable heat = load_heat(faults_, path()).value();
  auto seeded = make_frequency_recency(shape);
  seeded->set_heat(heat.uses_per_step);
  ExpertCache warm(shape, std::move(seeded));
  for (const auto& [layer, expert] : heat.hottest(64)) {
    EXPECT_TRUE(warm.admit_ahead(layer, expert).has_value());
  }
  EXPECT_EQ(warm.empty_slots(), 0);
  EXPECT_GT(hits_of(warm, 500, 510), hits_of(cold, 500, 510) + 20);
}

}  // namespace
}  // namespace motley
