#include "engine/memory_plan.h"

#include <gtest/gtest.h>

#include "base/owned_context.h"
#include "engine/engine_test_util.h"
#include "model/blocks/indexer.h"

namespace motley {
namespace {

constexpr int64_t kGB = 1'000'000'000;

MemoryNeeds needs_of_a_large_model() {
  return {.model = "m",
          .dense_bytes = 2 * kGB,
          .state_bytes = kGB / 2,
          .activation_bytes = kGB / 4,
          .process_bytes = kGB / 4,
          .expert_bytes = 18 * kGB,
          .slot_bytes = 2'000'000,
          .expert_count = 9000,
          .expert_layers = 40,
          .experts_per_token = 8};
}

MemoryRequest request_of(int64_t budget) {
  return {.budget = {.bytes = budget}, .usable_bytes = 30 * kGB, .usable_total_bytes = 32 * kGB};
}

TEST(MemoryPlan, KeepsEverythingWhenItFits) {
  const auto plan = plan_memory(needs_of_a_large_model(), request_of(22 * kGB));
  ASSERT_TRUE(plan.is_ok()) << plan.status().message();
  EXPECT_FALSE(plan->streamed);
  EXPECT_EQ(plan->total_bytes(), 21 * kGB);
}

TEST(MemoryPlan, StreamsInsideTheBudget) {
  const auto plan = plan_memory(needs_of_a_large_model(), request_of(8 * kGB));
  ASSERT_TRUE(plan.is_ok()) << plan.status().message();
  EXPECT_TRUE(plan->streamed);
  EXPECT_EQ(plan->slots, 2500);
  EXPECT_LE(plan->total_bytes(), plan->budget_bytes);
  EXPECT_NE(plan->lines().at(4).find("2500 of 9000 experts (27.8 %)"), std::string::npos);
}

TEST(MemoryPlan, RefusesLessThanTheFloorWithTheArithmetic) {
  // 3 GB fixed and 320 slots of 2 MB.
  EXPECT_TRUE(plan_memory(needs_of_a_large_model(), request_of(3'640'000'000)).is_ok());
  const auto plan = plan_memory(needs_of_a_large_model(), request_of(3'639'999'999));
  EXPECT_EQ(plan.status().message(),
            "m: 3.64 GB of memory are too little: weights 2.00 + state 0.50 + activations 0.25 + "
            "program 0.25 + experts 0.64 (320 of 9000 experts of 40 layers) = 3.64 GB; give more "
            "with --memory, or shorten --context");
}

TEST(MemoryPlan, TakesTheExpertsShareByHand) {
  MemoryRequest request = request_of(0);
  request.budget = {};
  request.expert_cache = {.share = 0.25};
  auto plan = plan_memory(needs_of_a_large_model(), request);
  ASSERT_TRUE(plan.is_ok()) << plan.status().message();
  EXPECT_TRUE(plan->streamed);
  EXPECT_EQ(plan->slots, 2250);

  request.expert_cache = {.share = 1};  // streamed all the same: for tests
  plan = plan_memory(needs_of_a_large_model(), request);
  ASSERT_TRUE(plan.is_ok());
  EXPECT_TRUE(plan->streamed);
  EXPECT_EQ(plan->slots, 9000);

  request.expert_cache = {.share = 0.01};
  EXPECT_EQ(plan_memory(needs_of_a_large_model(), request).status().message(),
            "m: an expert cache of 90 experts is too small: 40 layers need 8 each at once, 320 in "
            "all, which is 0.64 GB or 3.6 %");
}

TEST(MemoryPlan, RefusesMoreThanTheMachineHas) {
  EXPECT_EQ(plan_memory(needs_of_a_large_model(), request_of(64 * kGB)).status().message(),
            "memory of 64.00 GB wanted, this machine allows 32.00");
}

TEST(MemoryPlan, WithoutABudgetTakesWhatIsFree) {
  MemoryRequest request = request_of(0);
  request.budget = {};
  request.usable_bytes = 10 * kGB;
  const auto plan = plan_memory(needs_of_a_large_model(), request);
  ASSERT_TRUE(plan.is_ok());
  EXPECT_EQ(plan->budget_bytes, 9 * kGB);
  EXPECT_TRUE(plan->streamed);
}

TEST(SweepChoice, LongPromptsSweepAndShortAppendsDoNot) {
  const MemoryNeeds needs = needs_of_a_large_model();  // 8 of 225 experts
  EXPECT_FALSE(choose_sweep(needs, 1, 512).sweep);
  EXPECT_FALSE(choose_sweep(needs, 30, 512).sweep);
  EXPECT_TRUE(choose_sweep(needs, 60, 512).sweep);  // 89 % of all experts
  EXPECT_TRUE(choose_sweep(needs, 512, 512).sweep);
  const SweepChoice long_prompt = choose_sweep(needs, 4 * 512 + 1, 512);
  EXPECT_TRUE(long_prompt.sweep);
  EXPECT_NEAR(long_prompt.chunks_bytes / long_prompt.sweep_bytes, 4.04, 0.01);
  EXPECT_TRUE(choose_sweep(needs, 100, 10).sweep);  // ten small chunks would read it three times
}

TEST(MemoryPlan, NeedsFollowFromTheModel) {
  OwnedContext context({.threads = 1, .pin = false});
  const auto engine = load_tiny(context, {});
  ASSERT_NE(engine, nullptr);
  const ModelSpec& spec = engine->spec();
  const auto opened = open_model(context.get(), tiny_fixture());
  ASSERT_TRUE(opened.is_ok());
  const auto placement = place_model(*opened, {.stream_experts = true});
  ASSERT_TRUE(placement.is_ok());
  const MemoryNeeds needs =
      memory_needs(spec, *placement, engine->layout(), {.tokens = 100, .rows = 64});
  const auto& moe = std::get<MoeSpec>(spec.layers.front().feed_forward);
  EXPECT_EQ(needs.experts_per_token, moe.experts_per_token);
  EXPECT_EQ(needs.expert_count, needs.expert_layers * moe.experts);
  // bfloat16: two bytes a weight.
  const int64_t expert = 2 * 3 * moe.intermediate_size * spec.hidden_size;
  EXPECT_EQ(needs.expert_bytes, needs.expert_count * expert);
  EXPECT_GE(needs.slot_bytes, expert);
  EXPECT_EQ(needs.state_bytes, engine->layout().bytes_for(100));
  EXPECT_EQ(needs.expert_layers, std::ssize(spec.layers));
  const MemoryNeeds with_drafts =
      memory_needs(spec, *placement, engine->layout(), {.tokens = 100, .rows = 64, .drafts = true});
  EXPECT_EQ(with_drafts.expert_layers, std::ssize(spec.layers) + std::ssize(spec.drafts));
  EXPECT_GT(needs.dense_bytes, 0);
  EXPECT_LT(needs.dense_bytes,
            engine->model().placement.total().memory_bytes - needs.expert_bytes / 2);
}

TEST(MemoryPlan, ChoicesOfKeysCountAsActivations) {
  OwnedContext context({.threads = 1, .pin = false});
  const auto opened = open_model(context.get(), tiny_fixture("tiny-glm52"));
  ASSERT_TRUE(opened.is_ok()) << opened.status().message();
  const auto placement = place_model(*opened, {.stream_experts = true});
  ASSERT_TRUE(placement.is_ok());
  const StateLayout layout = make_state_layout(opened->spec, {});
  const auto activations = [&](const ModelSpec& spec, int64_t tokens) {
    return memory_needs(spec, *placement, layout, {.tokens = tokens, .rows = 64}).activation_bytes;
  };
  const ModelSpec& spec = opened->spec;
  const int64_t top_k = std::get<LatentAttentionSpec>(spec.layers[0].mixer).indexer.top_k;
  // A hidden row and, as a layer shares another's choice, that choice for every token of a sweep.
  EXPECT_EQ(activations(spec, 2000) - activations(spec, 1000),
            1000 * 4 * (spec.hidden_size + top_k + 1));
  ModelSpec without = spec;
  for (LayerSpec& layer : without.layers) {
    std::get<LatentAttentionSpec>(layer.mixer).keys = KeySource::kEvery;
  }
  EXPECT_GT(activations(spec, 64) - activations(without, 64), 4 * Indexer::kMostScores);
}

}  // namespace
}  // namespace motley
