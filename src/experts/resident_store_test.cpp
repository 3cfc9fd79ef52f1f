#include "experts/resident_store.h"

#include <gtest/gtest.h>

namespace motley {
namespace {

std::vector<std::vector<int32_t>> waves_of(int slots, std::vector<int32_t> wanted) {
  std::vector<std::vector<ExpertWeights>> layers(2);
  layers[1].resize(8);
  for (int64_t i = 0; i < 8; ++i) layers[1][static_cast<size_t>(i)].gate.rows = 100 + i;
  ResidentExpertStore store(std::move(layers), slots);
  std::vector<std::vector<int32_t>> waves;
  const Status status = store.for_each_wave(
      1, wanted,
      [&](std::span<const ResolvedExpert> wave) {
        waves.emplace_back();
        for (const ResolvedExpert& resolved : wave) {
          EXPECT_EQ(resolved.weights->gate.rows, 100 + resolved.expert);
          waves.back().push_back(resolved.expert);
        }
      },
      [] {});
  EXPECT_TRUE(status.is_ok());
  return waves;
}

TEST(ResidentExpertStore, OneWaveWithoutABound) {
  EXPECT_EQ(waves_of(0, {1, 4, 7}), (std::vector<std::vector<int32_t>>{{1, 4, 7}}));
}

TEST(ResidentExpertStore, WavesAreDisjointAndComplete) {
  EXPECT_EQ(waves_of(2, {0, 1, 4, 6, 7}), (std::vector<std::vector<int32_t>>{{0, 1}, {4, 6}, {7}}));
}

TEST(ResidentExpertStore, NothingWantedNothingComputed) {
  EXPECT_TRUE(waves_of(3, {}).empty());
}

}  // namespace
}  // namespace motley
