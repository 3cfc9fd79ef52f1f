#include "engine/plan/model_plan.h"

#include <gmock/gmock.h>

#include <filesystem>
#include <nlohmann/json.hpp>

#include "base/owned_context.h"
#include "engine/engine_plan.h"
#include "engine/engine_test_util.h"
#include "engine/plan/compute_probe.h"
#include "ops/cpu/cpu_backend.h"
#include "support/model_files.h"

namespace motley {
namespace {

using ::testing::HasSubstr;
using Json = nlohmann::json;

ModelPlanOptions tiny_options() {
  ModelPlanOptions options;
  options.engine.model = tiny_fixture();
  options.engine.context_length = 600;
  options.engine.step_rows = 64;
  options.prompts = {128, 512, 2048};
  options.drive_seconds_per_depth = 0.01;
  options.most_probe_bytes = int64_t{32} << 20;
  return options;
}

TEST(LayerKinds, AreTheDistinctLayersOfTheFixture) {
  OwnedContext context(test_threads());
  const auto opened = open_model(context.get(), tiny_fixture());
  ASSERT_TRUE(opened.is_ok()) << opened.status().message();
  const Placement placement = *place_model(*opened, {.stream_experts = true});
  const StateLayout layout = make_state_layout(opened->spec, {.drafts = false});
  const std::vector<LayerKind> kinds = layer_kinds(opened->spec, placement, layout);
  ASSERT_EQ(kinds.size(), 2U);
  EXPECT_EQ(kinds[0].layers, (std::vector<int>{0, 1, 2, 4, 5, 6}));
  EXPECT_EQ(kinds[1].layers, (std::vector<int>{3, 7}));
  EXPECT_EQ(kinds[0].name, "gated delta, 16 experts");
  EXPECT_EQ(kinds[0].state_bytes_per_token, 0);
  EXPECT_GT(kinds[1].state_bytes_per_token, 0);
  // All bytes of the trunk are counted once.
  const MemoryNeeds needs = memory_needs(opened->spec, placement, layout, {.tokens = 1, .rows = 1});
  int64_t experts = 0;
  int64_t dense = 0;
  for (const LayerKind& kind : kinds) {
    experts += kind.count() * kind.experts_bytes();
    dense += kind.count() * kind.dense_bytes;
  }
  EXPECT_EQ(experts, needs.expert_bytes);
  EXPECT_LT(dense, needs.dense_bytes);  // embedding, head and drafts are no layers
  EXPECT_GT(2 * dense, needs.dense_bytes / 2);
}

TEST(ComputeProbe, TimesEveryKindInEveryFormat) {
  OwnedContext context(test_threads());
  for (const bool quantized : {false, true}) {
    const TemporaryDirectory directory;
    TestModelOptions model;
    model.mlx = quantized;
    if (quantized) model.quantized = MlxAffineFormat{4, 32};
    write_model(TestModel(model), directory);
    auto opened = open_model(context.get(), directory.path());
    ASSERT_TRUE(opened.is_ok()) << opened.status().message();
    const Placement placement = *place_model(*opened, {.stream_experts = true});
    ComputeProbeOptions options{.near_tokens = 8,
                                .far_tokens = 70,
                                .chunk_tokens = 16,
                                .most_bytes = int64_t{8} << 20,
                                .seconds_per_timing = 0.001};
    options.state.drafts = false;
    const std::vector<LayerKind> kinds =
        layer_kinds(opened->spec, placement, make_state_layout(opened->spec, options.state));
    const auto rates =
        measure_model_rates(context.get(), std::move(*opened), kinds,
                            cpu_op_table(CpuIsa::kPortable, NumericProfile::kExact), options);
    ASSERT_TRUE(rates.is_ok()) << rates.status().message();
    ASSERT_EQ(rates->kinds.size(), kinds.size());
    for (const KindRates& kind : rates->kinds) {
      EXPECT_GT(kind.decode_s, 0);
      EXPECT_GT(kind.experts_s, 0);
      EXPECT_GT(kind.expert_alone_s, 0);
      EXPECT_GT(kind.prefill_s, 0);
      EXPECT_GT(kind.prefill_experts_s, 0);
      EXPECT_LT(kind.decode_s, 1);
    }
    EXPECT_GT(rates->head_s, 0);
    EXPECT_GT(rates->head_bytes, 0);
    EXPECT_GT(rates->read_one_bytes_per_s, 1e6);
    EXPECT_GT(rates->read_all_bytes_per_s, 1e6);
  }
}

TEST(ModelPlan, OfAResidentModelNeedsNoDrive) {
  OwnedContext context(test_threads());
  const auto plan = plan_model(context.get(), tiny_options());
  ASSERT_TRUE(plan.is_ok()) << plan.status().message();
  EXPECT_FALSE(plan->memory.streamed);
  EXPECT_FALSE(plan->drive.has_value());
  ASSERT_TRUE(plan->decode.has_value());
  EXPECT_GT(plan->decode->tokens_per_s(), 0);
  EXPECT_EQ(plan->prefill.size(), 2U);  // 2,048 tokens are beyond the context
  EXPECT_TRUE(plan->notes.empty());
  const Json json = Json::parse(plan->json());
  EXPECT_TRUE(json.at("drive").is_null());
  EXPECT_EQ(json.at("prediction").at("hit_share"), 1.0);
  EXPECT_THAT(plan->table(), HasSubstr("decode "));
}

TEST(ModelPlan, OfAStreamedModelProbesItsDriveAndKeepsWhatItMeasured) {
  OwnedContext context(test_threads());
  const TemporaryDirectory directory;
  ModelPlanOptions options = tiny_options();
  options.engine.expert_cache = {.share = 0.5};
  options.drive_cache = directory / "drives.json";
  options.rate_cache = directory / "rates.json";
  const auto first = plan_model(context.get(), options);
  ASSERT_TRUE(first.is_ok()) << first.status().message();
  ASSERT_TRUE(first->drive.has_value()) << first->notes.front();
  EXPECT_FALSE(first->rates_cached || first->drive_cached);
  EXPECT_EQ(first->parts, 2);  // gate and up are one range of this checkpoint, down is another
  EXPECT_NEAR(first->hit_share, 0.5, 1e-9);
  EXPECT_GT(first->decode->drive_bytes, 0);
  EXPECT_TRUE(first->prefill.front().is_swept);
  const auto second = plan_model(context.get(), options);
  ASSERT_TRUE(second.is_ok());
  EXPECT_TRUE(second->rates_cached && second->drive_cached);
  EXPECT_EQ(second->rates, first->rates);
  const double first_s = first->decode->time.total_s();
  EXPECT_NEAR(second->decode->time.total_s(), first_s, 1e-6 * first_s);
  EXPECT_THAT(second->table(), HasSubstr("measured before; --probe measures again"));
  options.engine.profile = NumericProfile::kExact;
  EXPECT_FALSE(plan_model(context.get(), options)->rates_cached);
  options.probe_again = true;
  EXPECT_FALSE(plan_model(context.get(), options)->rates_cached);
}

TEST(ModelPlan, ADamagedCacheIsMeasuredAgainAndSaysSo) {
  OwnedContext context(test_threads());
  const TemporaryDirectory directory;
  directory.write("rates.json", "{");
  ModelPlanOptions options = tiny_options();
  options.rate_cache = directory / "rates.json";
  const auto plan = plan_model(context.get(), options);
  ASSERT_TRUE(plan.is_ok());
  ASSERT_EQ(plan->notes.size(), 1U);
  EXPECT_THAT(plan->notes.front(), HasSubstr("cache of rates ignored: " + options.rate_cache));
  EXPECT_TRUE(plan->decode.has_value());
  EXPECT_TRUE(plan_model(context.get(), options)->rates_cached);
  // A place that cannot be written is a note, no failure.
  options.rate_cache = directory / "rates.json/x";
  EXPECT_TRUE(plan_model(context.get(), options)->decode.has_value());
}

TEST(ModelPlan, WithoutADriveProbeTheLedgerIsStillThere) {
  OwnedContext context(test_threads());
  ModelPlanOptions options = tiny_options();
  options.engine.expert_cache = {.share = 0.5};
  context.faults().arm("io.stream.read", 1, io_error("x"));
  context.faults().arm("io.stream.retry", 1, io_error("x"));
  const auto plan = plan_model(context.get(), options);
  ASSERT_TRUE(plan.is_ok()) << plan.status().message();
  EXPECT_FALSE(plan->decode.has_value());
  EXPECT_THAT(plan->notes.front(), HasSubstr("speed is not predicted: cannot probe the drive"));
  EXPECT_THAT(plan->table(), HasSubstr("floor"));
  EXPECT_TRUE(Json::parse(plan->json()).at("prediction").is_null());
}

TEST(ModelPlan, RefusesAsTheEngineDoes) {
  OwnedContext context(test_threads());
  for (const EngineOptions& wrong :
       {EngineOptions{.memory = {.bytes = 1000}},
        EngineOptions{.memory = {.bytes = int64_t{1} << 60}},
        EngineOptions{.context_length = 1'000'000}, EngineOptions{.cpu = "z80"}}) {
    ModelPlanOptions options = tiny_options();
    options.engine = wrong;
    options.engine.model = tiny_fixture();
    EngineOptions engine = options.engine;
    const Status planned = plan_model(context.get(), options).status();
    const Status loaded = Engine::load(context.get(), std::move(engine)).status();
    EXPECT_FALSE(planned.is_ok());
    EXPECT_EQ(planned.message(), loaded.message());
  }
}

TEST(ModelPlan, HeatReplacesTheGuessOfEvenRouting) {
  OwnedContext context(test_threads());
  ModelPlanOptions options = tiny_options();
  options.engine.expert_cache = {.share = 0.5};
  HeatTable heat{.layers = 8, .experts = 16};
  for (int i = 0; i < 8 * 16; ++i) heat.uses_per_step.push_back(i % 16 < 8 ? 0.5f : 0.0f);
  options.heat = heat;
  options.heat_file = "h";
  const auto plan = plan_model(context.get(), options);
  ASSERT_TRUE(plan.is_ok());
  EXPECT_NEAR(plan->hit_share, 1, 1e-9);
  EXPECT_EQ(plan->hit_source, "routing as learned in h");
  options.heat->layers = 4;  // of another model
  options.heat->uses_per_step.resize(4 * 16);
  const Status refused = plan_model(context.get(), options).status();
  EXPECT_EQ(refused.code(), StatusCode::kInvalidArgument);
  EXPECT_THAT(refused.message(), HasSubstr("h: "));
}

}  // namespace
}  // namespace motley
