#include "engine/token_candidates.h"

#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>

#include "engine/sampler.h"

namespace motley {
namespace {

// By sorting everything.
std::vector<int32_t> by_sorting(const std::vector<float>& logits, const SamplingParams& params) {
  std::vector<int32_t> order(logits.size());
  std::iota(order.begin(), order.end(), 0);
  std::stable_sort(order.begin(), order.end(), [&](int32_t a, int32_t b) {
    return logits[static_cast<size_t>(a)] > logits[static_cast<size_t>(b)];
  });
  if (params.top_k > 0 && params.top_k < std::ssize(order)) {
    order.resize(static_cast<size_t>(params.top_k));
  }
  const auto weight = [&](int32_t token) {
    const double below = logits[static_cast<size_t>(token)] -
                         static_cast<double>(logits[static_cast<size_t>(order.front())]);
    return std::exp(below / params.temperature);
  };
  double total = 0;
  for (const int32_t token : order) total += weight(token);
  double mass = 0;
  size_t kept = 0;
  while (kept < order.size() && (kept == 0 || params.top_p == 1 || mass < params.top_p * total) &&
         weight(order[kept]) >= params.min_p) {
    mass += weight(order[kept++]);
  }
  order.resize(kept);
  return order;
}

std::vector<int32_t> found(const std::vector<float>& logits, const SamplingParams& params) {
  std::vector<int32_t> kept = {99};  // what was there before does not stay
  find_candidates(logits, params, &kept);
  return kept;
}

// Quarters, so that ties occur; a spread of one makes nearly all tokens equal, forty nearly none.
std::vector<float> random_logits(int count, int spread, uint64_t seed) {
  std::vector<float> logits(static_cast<size_t>(count));
  for (size_t i = 0; i < logits.size(); ++i) {
    logits[i] = 0.25f * static_cast<float>(std::floor(4 * spread * uniform_at(seed, i)));
  }
  return logits;
}

RC_GTEST_PROP(TokenCandidatesProperty, AreThoseOfAWholeSort, ()) {
  const auto logits = random_logits(*rc::gen::inRange(1, 400), *rc::gen::element(1, 6, 40, 200),
                                    *rc::gen::arbitrary<uint64_t>());
  SamplingParams params{.temperature = *rc::gen::element(0.05, 0.8, 1.0, 3.0),
                        .top_k = *rc::gen::element(0, 0, 1, 5, 1000),
                        // No sum of exponentials of quarters is a share such as these of another.
                        .top_p = *rc::gen::element(1.0, 0.1234567, 0.91234567, 0.99912345),
                        .min_p = *rc::gen::element(0.0, 0.0, 0.0123, 0.77)};
  RC_ASSERT(found(logits, params) == by_sorting(logits, params));
}

TEST(TokenCandidates, OneLikelyTokenIsEnoughForTopP) {
  EXPECT_EQ(found({0, 50, 0}, {.temperature = 1, .top_p = 0.9}), std::vector<int32_t>{1});
}

TEST(TokenCandidates, NotANumberIsNeverKept) {
  const float nan = std::numeric_limits<float>::quiet_NaN();
  const float infinity = std::numeric_limits<float>::infinity();
  EXPECT_EQ(found({nan, 1, nan, 2}, {.temperature = 1, .top_k = 3}), (std::vector<int32_t>{3, 1}));
  EXPECT_EQ(found({nan, 1, nan, 2}, {.temperature = 1, .top_p = 0.999}),
            (std::vector<int32_t>{3, 1}));
  EXPECT_TRUE(found({nan, nan}, {.temperature = 1, .top_p = 0.5}).empty());
  EXPECT_TRUE(found({-infinity, nan}, {.temperature = 1, .top_k = 1}).empty());
  EXPECT_EQ(found({1, infinity, 2}, {.temperature = 1, .top_p = 0.5}), std::vector<int32_t>{1});
}

// What a draw skips could not have won.
TEST(TokenCandidates, DrawsAreThoseOfNoiseForEveryToken) {
  for (uint64_t seed = 0; seed < 300; ++seed) {
    const auto logits = random_logits(200, seed % 2 == 0 ? 3 : 30, seed);
    const double temperature = seed % 3 == 0 ? 0.7 : 2.5;
    int32_t expected = 0;
    double highest = -std::numeric_limits<double>::infinity();
    for (int32_t token = 0; token < 200; ++token) {
      const double score =
          logits[static_cast<size_t>(token)] / temperature + gumbel_at(seed, 5, token);
      if (score > highest) {
        highest = score;
        expected = token;
      }
    }
    Sampler sampler({.temperature = temperature, .seed = seed});
    EXPECT_EQ(sampler.choose(logits, 5), expected) << seed;
  }
}

}  // namespace
}  // namespace motley
