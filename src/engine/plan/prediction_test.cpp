#include "engine/plan/prediction.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>

namespace motley {
namespace {

// One kind of ten layers: eight experts of which two speak. Round numbers, so that every figure can
// be followed by hand.
PredictionInput made_up() {
  PredictionInput input;
  LayerKind kind{.name = "made up", .layers = std::vector<int>(10)};
  std::iota(kind.layers.begin(), kind.layers.end(), 0);
  kind.dense_bytes = 1'000'000;
  kind.one_expert_bytes = 1'000'000;
  kind.experts = 8;
  kind.experts_per_token = 2;
  kind.state_bytes_per_token = 100;
  input.kinds = {kind};
  input.rates = {.threads = 2,
                 .near_tokens = 500,
                 .chunk_tokens = 100,
                 .head_s = 0.001,
                 .head_bytes = 1'000'000,
                 .read_one_bytes_per_s = 5e9,
                 .read_all_bytes_per_s = 1e10,
                 .kinds = {{.decode_s = 0.002,
                            .decode_per_context_s = 1e-6,
                            .experts_s = 0.001,
                            .expert_alone_s = 0.0006,
                            .prefill_s = 0.02,
                            .prefill_per_position_s = 1e-5,
                            .prefill_experts_s = 0.01}}};
  input.plan.needs = {.dense_bytes = 11'000'000,
                      .expert_bytes = 80'000'000,
                      .slot_bytes = 1'000'000,
                      .expert_count = 80,
                      .expert_layers = 10,
                      .experts_per_token = 2};
  return input;
}

PredictionInput streamed(int64_t slots) {
  PredictionInput input = made_up();
  input.plan.streamed = true;
  input.plan.slots = slots;
  input.hit_share = even_hit_share(input.plan);
  input.drive =
      DriveProbe{.random = {{1, 1e8}, {2, 2e8}, {4, 3e8}}, .sequential_bytes_per_second = 4e8};
  return input;
}

double even_hits(const MemoryPlan& plan) {
  return even_hit_share(plan);
}

TEST(Prediction, ADecodedTokenIsTheSumOfItsLayersAndTheHead) {
  const DecodePrediction decode = predict_decode(made_up(), 500);
  EXPECT_NEAR(decode.time.total_s(), 10 * 0.003 + 0.001, 1e-12);
  EXPECT_EQ(decode.time.drive_s, 0);
  EXPECT_EQ(decode.drive_bytes, 0);
  EXPECT_EQ(decode.memory_bytes, 10 * (1'000'000 + 500 * 100 + 2'000'000) + 1'000'000);
  EXPECT_NEAR(decode.time.memory_s, decode.memory_bytes / 1e10, 1e-12);
  EXPECT_EQ(decode.time.binding(), "processor");
  // 1,000 more tokens of context cost 1 ms a layer.
  EXPECT_NEAR(predict_decode(made_up(), 1500).time.total_s(), 0.041, 1e-12);
}

TEST(Prediction, MemoryBindsWhatReadsAtItsRate) {
  PredictionInput input = made_up();
  input.rates.read_all_bytes_per_s = 1e9;
  EXPECT_EQ(predict_decode(input, 500).time.binding(), "memory");
  // Slower than the work was measured: the time stays what was measured.
  input.rates.read_all_bytes_per_s = 1e6;
  const TimeParts time = predict_decode(input, 500).time;
  EXPECT_NEAR(time.total_s(), 0.031, 1e-12);
  EXPECT_EQ(time.compute_s, 0);
}

TEST(Prediction, ReadsThatStartTogetherTakeWhatTheirDepthGives) {
  const DriveProbe drive = *streamed(20).drive;
  EXPECT_NEAR(read_seconds(drive, 1, 1'000'000), 0.01, 1e-12);
  EXPECT_NEAR(read_seconds(drive, 2, 1'000'000), 0.01, 1e-12);
  EXPECT_NEAR(read_seconds(drive, 3, 1'000'000), 3e6 / 2.5e8, 1e-12);  // between depths 2 and 4
  EXPECT_NEAR(read_seconds(drive, 8, 1'000'000), 8e6 / 3e8, 1e-12);    // beyond the last
  const DriveProbe deep{.random = {{4, 4e8}}};
  EXPECT_NEAR(read_seconds(deep, 1, 1'000'000), 0.0025, 1e-12);  // before the first
}

TEST(Prediction, MissesWaitForTheDriveBeyondTheWorkMeanwhile) {
  PredictionInput none = streamed(20);
  none.hit_share = 1;
  EXPECT_NEAR(predict_decode(none, 500).time.total_s(), 0.031, 1e-12);
  PredictionInput all = streamed(20);
  all.hit_share = 0;
  const DecodePrediction missed = predict_decode(all, 500);
  // Two reads take 10 ms; one product fits beside them, the last follows.
  EXPECT_NEAR(missed.time.total_s(), 10 * (0.002 + 0.010 + 0.0006) + 0.001, 1e-9);
  EXPECT_NEAR(missed.time.drive_s, 10 * (0.010 - 0.0006), 1e-9);
  EXPECT_EQ(missed.drive_bytes, 10 * 2'000'000);
  EXPECT_EQ(missed.time.binding(), "drive");
  // A quarter in memory: misses of 0, 1, 2 of two with 1/16, 6/16, 9/16.
  const double one = 0.002 + 0.0005 + 0.0006 + (0.010 - 0.0005);
  const double two = 0.002 + 0.010 + 0.0006;
  EXPECT_NEAR(predict_decode(streamed(20), 500).time.total_s(),
              10 * (0.003 / 16 + 6 * one / 16 + 9 * two / 16) + 0.001, 1e-9);
}

TEST(Prediction, PrefillInMemoryCountsChunksAndPositions) {
  const PrefillPrediction prefill = predict_prefill(made_up(), 250, 100);
  // Chunks of 100, 100, 50 at 0, 100, 200.
  const double layer = (0.02 + 0.01) + (0.02 + 0.001 + 0.01) + 0.5 * (0.02 + 0.002 + 0.01);
  EXPECT_NEAR(prefill.time.total_s(), 10 * layer + 0.001, 1e-9);
  EXPECT_FALSE(prefill.is_swept);
  EXPECT_EQ(prefill.drive_bytes, 0);
  EXPECT_NEAR(prefill.tokens_per_s(), 250 / prefill.time.total_s(), 1e-9);
}

TEST(Prediction, ASweepReadsAModelOnceBesideTheWork) {
  PredictionInput input = streamed(40);
  const PrefillPrediction swept = predict_prefill(input, 200, 100);
  EXPECT_TRUE(swept.is_swept);
  EXPECT_NEAR(swept.drive_bytes, 0.75 * 80'000'000, 1);  // half in memory: a quarter is found
  // A layer reads 6 MB in 15 ms and computes 61 ms.
  EXPECT_EQ(swept.time.drive_s, 0);
  input.drive->sequential_bytes_per_second = 4e7;
  const PrefillPrediction slow = predict_prefill(input, 200, 100);
  EXPECT_NEAR(slow.time.drive_s, 10 * (0.15 - 0.061), 1e-9);
  EXPECT_EQ(slow.time.binding(), "drive");
}

TEST(Prediction, ACacheSmallerThanALayerReadsItForEveryChunk) {
  PredictionInput input = streamed(20);  // of which other layers keep 18
  const PrefillPrediction prefill = predict_prefill(input, 200, 100);
  EXPECT_NEAR(prefill.drive_bytes, 2 * 0.9375 * 80'000'000, 1);
}

TEST(Prediction, AShortPromptReadsWhatItNeeds) {
  const PrefillPrediction prefill = predict_prefill(streamed(40), 1, 100);
  EXPECT_FALSE(prefill.is_swept);
  EXPECT_NEAR(prefill.drive_bytes, 0.5 * 0.25 * 80'000'000, 1);
}

TEST(HitShare, OfEvenRoutingIsTheShareInMemory) {
  EXPECT_EQ(even_hit_share(made_up().plan), 1);
  EXPECT_EQ(even_hit_share(streamed(20).plan), 0.25);
}

TEST(HitShare, OfHeatIsWhatTheHottestTake) {
  HeatTable heat{.layers = 2, .experts = 4};
  heat.uses_per_step = {0.9f, 0.1f, 0.0f, 0.0f, 0.4f, 0.3f, 0.2f, 0.1f};
  MemoryPlan plan{.needs = {.expert_count = 8, .expert_layers = 2, .experts_per_token = 1}};
  EXPECT_EQ(heat_hit_share(plan, heat), 1);  // all in memory
  plan.streamed = true;
  plan.slots = 2;  // the floor
  EXPECT_NEAR(heat_hit_share(plan, heat), 1.3 / 2, 1e-6);
  plan.slots = 3;
  EXPECT_NEAR(heat_hit_share(plan, heat), 1.6 / 2, 1e-6);
  plan.slots = 8;
  EXPECT_NEAR(heat_hit_share(plan, heat), 1, 1e-6);
  heat.uses_per_step.assign(8, 0.0f);
  plan.slots = 4;
  EXPECT_EQ(heat_hit_share(plan, heat), 0.5);  // nothing learned
}

TEST(Advice, NamesTheMemoryForHalfAsMuchAgain) {
  const PredictionInput input = streamed(20);
  const double now = predict_decode(input, 500).tokens_per_s();
  const std::vector<Advice> advice = advise(input, 500, even_hits);
  const auto memory = std::find_if(advice.begin(), advice.end(), [](const Advice& each) {
    return each.change.find("of memory") != std::string::npos;
  });
  ASSERT_NE(memory, advice.end());
  EXPECT_GE(memory->factor, 1.5);
  EXPECT_LT(memory->factor, 1.6);  // no more than needed
  EXPECT_NEAR(memory->tokens_per_s, memory->factor * now, 1e-9);
}

TEST(Advice, IsOrderedAndLeavesOutWhatDoesNotHelp) {
  const std::vector<Advice> bound = advise(streamed(20), 500, even_hits);
  ASSERT_GE(bound.size(), 2U);
  for (size_t i = 1; i < bound.size(); ++i) EXPECT_GE(bound[i - 1].factor, bound[i].factor);
  const std::vector<Advice> resident = advise(made_up(), 500, even_hits);
  ASSERT_EQ(resident.size(), 1U);
  EXPECT_EQ(resident.front().change, "twice the processor cores");
  // A memory that is read at its full rate by one thread gives two no more.
  PredictionInput saturated = made_up();
  saturated.rates.read_one_bytes_per_s = saturated.rates.read_all_bytes_per_s = 5e8;
  EXPECT_TRUE(advise(saturated, 500, even_hits).empty());
}

TEST(Advice, SaysWhenAllOfTheModelIsNotEnough) {
  PredictionInput input = streamed(79);
  const std::vector<Advice> advice = advise(input, 500, even_hits);
  for (const Advice& each : advice) {
    if (each.change.find("of memory") == std::string::npos) continue;
    EXPECT_NE(each.change.find(", all experts in it"), std::string::npos);
    EXPECT_LT(each.factor, 1.5);
  }
}

}  // namespace
}  // namespace motley
