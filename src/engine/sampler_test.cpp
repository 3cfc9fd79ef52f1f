#include "engine/sampler.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>

namespace motley {
namespace {

const std::vector<float> kLogits = {0.0f, 3.0f, 1.0f, 3.0f, -2.0f};

std::vector<int> histogram(const SamplingParams& params, int draws) {
  std::vector<int> counts(kLogits.size());
  for (int i = 0; i < draws; ++i) {
    Sampler sampler(params);
    ++counts[static_cast<size_t>(sampler.sample(kLogits, i, 0).token)];
  }
  return counts;
}

TEST(Sampler, GreedyTakesTheLowestIdOfATie) {
  Sampler sampler({});
  EXPECT_EQ(sampler.sample(kLogits, 0, 0).token, 1);
}

TEST(Sampler, ArgmaxIgnoresNan) {
  const float nan = std::numeric_limits<float>::quiet_NaN();
  EXPECT_EQ(argmax(std::vector<float>{nan, 1.0f, 2.0f}), 2);
  EXPECT_EQ(argmax(std::vector<float>{nan, nan}), 0);
}

TEST(Sampler, TemperatureOneFollowsTheDistribution) {
  constexpr int kDraws = 20000;
  const std::vector<int> counts = histogram({.temperature = 1, .seed = 7}, kDraws);
  double total = 0;
  for (const float logit : kLogits) total += std::exp(static_cast<double>(logit));
  double chi_square = 0;
  for (size_t i = 0; i < kLogits.size(); ++i) {
    const double expected = std::exp(static_cast<double>(kLogits[i])) / total * kDraws;
    chi_square += (counts[i] - expected) * (counts[i] - expected) / expected;
  }
  EXPECT_LT(chi_square, 18.5);  // p = 0.001 at 4 degrees of freedom
}

TEST(Sampler, TopKTopPAndMinPCutTheTail) {
  EXPECT_EQ(histogram({.temperature = 5, .top_k = 1}, 200)[1], 200);
  const std::vector<int> top_p = histogram({.temperature = 1, .top_p = 0.5}, 500);
  EXPECT_EQ(top_p[1] + top_p[3], 500);
  const std::vector<int> min_p = histogram({.temperature = 1, .min_p = 0.1}, 500);
  EXPECT_EQ(min_p[0] + min_p[4], 0);
  EXPECT_GT(min_p[2], 0);
}

TEST(Sampler, PenaltiesAndBiasMoveTheChoice) {
  Sampler biased({.logit_bias = {{4, 100.0}}});
  EXPECT_EQ(biased.sample(kLogits, 0, 0).token, 4);

  Sampler repetition({.repetition_penalty = 10});
  repetition.observe_prompt(std::vector<int32_t>{1, 3});
  EXPECT_EQ(repetition.sample(kLogits, 0, 0).token, 2);

  Sampler presence({.presence_penalty = 2.5});
  EXPECT_EQ(presence.sample(kLogits, 0, 0).token, 1);
  EXPECT_EQ(presence.sample(kLogits, 1, 0).token, 3);
  EXPECT_EQ(presence.sample(kLogits, 2, 0).token, 2);
}

TEST(Sampler, FrequencyPenaltyGrowsWithTheCount) {
  Sampler sampler({.frequency_penalty = 0.9});
  std::vector<int> counts(kLogits.size());
  for (int i = 0; i < 7; ++i) ++counts[static_cast<size_t>(sampler.sample(kLogits, i, 0).token)];
  EXPECT_EQ(counts[1], 3);
  EXPECT_EQ(counts[3], 3);
  EXPECT_EQ(counts[2], 1);
}

TEST(Sampler, DrawDependsOnSeedAndPositionAlone) {
  Sampler first({.temperature = 1, .seed = 3});
  Sampler second({.temperature = 1, .seed = 3});
  (void)second.sample(kLogits, 11, 0);
  EXPECT_EQ(first.sample(kLogits, 5, 0).token, second.sample(kLogits, 5, 0).token);
}

TEST(Sampler, ChoosingRecordsNothingAndForgettingUndoesRecording) {
  Sampler sampler({.presence_penalty = 2.5});
  EXPECT_EQ(sampler.choose(kLogits, 0), 1);
  EXPECT_EQ(sampler.choose(kLogits, 0), 1);
  sampler.record(1);
  sampler.record(1);
  EXPECT_EQ(sampler.choose(kLogits, 1), 3);
  sampler.forget(1);
  EXPECT_EQ(sampler.choose(kLogits, 1), 3) << "once is still recorded";
  sampler.forget(1);
  EXPECT_EQ(sampler.choose(kLogits, 1), 1);
}

// Two distributions at a total variation distance of d draw different tokens with the same noise
// in at most 2 d / (1 + d) of all draws.
TEST(Sampler, NearlyEqualLogitsDrawTheSameToken) {
  std::vector<float> other = kLogits;
  for (size_t i = 0; i < other.size(); ++i) other[i] += 0.02f * static_cast<float>(i % 3);
  int different = 0;
  for (int position = 0; position < 10000; ++position) {
    Sampler a({.temperature = 1, .seed = 3});
    Sampler b({.temperature = 1, .seed = 3});
    different += a.choose(kLogits, position) != b.choose(other, position) ? 1 : 0;
  }
  EXPECT_GT(different, 0);
  EXPECT_LT(different, 300);
}

TEST(Sampler, NoiseIsGumbelsAndBounded) {
  constexpr int kDraws = 100000;
  double sum = 0;
  double highest = 0;
  for (int i = 0; i < kDraws; ++i) {
    const double noise = gumbel_at(5, static_cast<uint64_t>(i / 100), i % 100);
    ASSERT_TRUE(std::isfinite(noise));
    sum += noise;
    highest = std::max(highest, noise);
  }
  EXPECT_NEAR(sum / kDraws, 0.5772, 0.02);
  EXPECT_LT(highest, kMostNoise);
}

TEST(Sampler, LogprobsAreTheModelsOwn) {
  Sampler sampler({.logit_bias = {{4, 100.0}}});
  const SampledToken sampled = sampler.sample(kLogits, 0, 3);
  double total = 0;
  for (const float logit : kLogits) total += std::exp(static_cast<double>(logit));
  EXPECT_NEAR(sampled.logprob, -2.0 - std::log(total), 1e-9);
  ASSERT_EQ(sampled.top.size(), 3u);
  EXPECT_EQ(sampled.top[0].token, 1);
  EXPECT_EQ(sampled.top[1].token, 3);
  EXPECT_EQ(sampled.top[2].token, 2);
}

TEST(SamplingParams, ValuesOutOfRangeAreNamed) {
  EXPECT_TRUE(SamplingParams{}.validate(10).is_ok());
  SamplingParams params;
  params.top_p = 1.5;
  EXPECT_EQ(params.validate(10).message(), "top_p is 1.5, allowed are 0 to 1");
  params = {};
  params.temperature = std::numeric_limits<double>::quiet_NaN();
  EXPECT_FALSE(params.validate(10).is_ok());
  params = {};
  params.logit_bias[10] = 1;
  EXPECT_EQ(params.validate(10).message(), "logit_bias names token 10, the vocabulary has 10");
}

}  // namespace
}  // namespace motley
