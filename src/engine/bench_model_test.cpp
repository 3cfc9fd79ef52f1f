#include "engine/bench_model.h"

#include <gtest/gtest.h>

#include "base/owned_context.h"
#include "engine/engine_test_util.h"

namespace motley {
namespace {

TEST(TokenCost, CountsWhatATokenMeets) {
  OwnedContext context({.threads = 1, .pin = false});
  const auto engine = load_tiny(context, {});
  ASSERT_NE(engine, nullptr);
  const ModelSpec& spec = engine->spec();
  const ParameterCounts counts = count_parameters(spec);
  // By hand: everything but the embedding table, the draft layers and the experts left out.
  int64_t expected = spec.hidden_size;
  int64_t total = 0;
  const auto& moe = std::get<MoeSpec>(spec.layers.front().feed_forward);
  for (size_t i = 0; i < spec.tensors.size(); ++i) {
    const TensorSpec& tensor = spec.tensors[i];
    total += tensor.shape.elements();
    if (tensor.part == "draft" || static_cast<int32_t>(i) == spec.embedding.index) continue;
    const bool routed = tensor.role == TensorRole::kExperts;
    expected += routed ? tensor.shape.elements() / moe.experts * moe.experts_per_token
                       : tensor.shape.elements();
  }
  EXPECT_EQ(counts.total, total);
  EXPECT_EQ(counts.active, expected);
  EXPECT_GT(counts.drafts, 0);

  const TokenCost cost = token_cost(spec, engine->model().weights, engine->layout());
  // The fixture is bfloat16: two bytes a weight, vectors and convolutions as float32.
  EXPECT_GE(cost.weight_bytes, 2 * counts.active);
  EXPECT_LT(cost.weight_bytes, 3 * counts.active);
  EXPECT_EQ(cost.decode_multiply_adds - cost.prefill_multiply_adds,
            spec.vocab_size * spec.hidden_size);
  EXPECT_EQ(cost.decode_bytes(10) - cost.decode_bytes(0), 10 * cost.state_bytes_per_token);
  EXPECT_EQ(cost.state_bytes_per_token, engine->layout().bytes_per_token());
}

TEST(BenchModel, TimesPrefillAndDecode) {
  OwnedContext context({.threads = 1, .pin = false});
  const auto engine = load_tiny(context, {});
  ASSERT_NE(engine, nullptr);
  const Result<ModelBench> bench = bench_model(
      *engine, {.prompt_tokens = 20, .generate_tokens = 3, .repeat = 2, .prefill_chunk = 8});
  ASSERT_TRUE(bench.is_ok()) << bench.status().message();
  ASSERT_EQ(bench->runs.size(), 2U);
  for (const BenchRun& run : bench->runs) {
    EXPECT_GT(run.prefill_s, 0);
    EXPECT_GT(run.decode_s, 0);
    EXPECT_EQ(run.read_bytes_per_s, 0);
  }
  EXPECT_GT(bench->prefill_tokens_per_s(), 0);
  EXPECT_EQ(bench->bandwidth_share(), 0);  // nothing to hold it against
  EXPECT_NE(bench->table().find("not measured"), std::string::npos);
}

TEST(BenchModel, LogitsHashTellsWhetherTwoRunsHadTheSameBits) {
  OwnedContext context({.threads = 2, .pin = false});
  const auto hashes = [&context](const EngineOptions& engine_options, uint64_t seed) {
    const auto engine = load_tiny(context, engine_options);
    const auto bench = bench_model(
        *engine,
        {.prompt_tokens = 20, .generate_tokens = 3, .repeat = 2, .prefill_chunk = 8, .seed = seed});
    return std::pair(bench.value().runs[0].logits_hash, bench.value().runs[1].logits_hash);
  };
  EngineOptions streamed;
  streamed.expert_cache = {.share = 0.25};
  const auto resident = hashes({}, 1);
  EXPECT_EQ(hashes(streamed, 1), resident);
  EXPECT_NE(resident.first, resident.second);       // the runs have seeds of their own
  EXPECT_EQ(hashes({}, 2).first, resident.second);  // and nothing else tells them apart
}

TEST(BenchModel, TakesTheMemoryRateBesideTheTokens) {
  OwnedContext context({.threads = 2, .pin = false});
  const auto engine = load_tiny(context, {});
  ASSERT_NE(engine, nullptr);
  const Result<ModelBench> bench = bench_model(
      *engine,
      {.prompt_tokens = 2, .generate_tokens = 3, .repeat = 2, .read_bytes = int64_t{64} << 20});
  ASSERT_TRUE(bench.is_ok()) << bench.status().message();
  for (const BenchRun& run : bench->runs) EXPECT_GT(run.read_bytes_per_s, 1e7);
  EXPECT_GT(bench->bandwidth_share(), 0);
}

TEST(BenchModel, SharesFollowFromTheRates) {
  ModelBench bench;
  bench.options = {.prompt_tokens = 100, .generate_tokens = 10};
  bench.runs = {{.prefill_s = 2, .decode_s = 5, .read_bytes_per_s = 2500},
                {.prefill_s = 1, .decode_s = 10, .read_bytes_per_s = 100}};
  bench.cost.weight_bytes = 900;
  bench.cost.state_fixed_bytes = 100;
  bench.cost.prefill_multiply_adds = 1000;
  bench.matrix_numbers = "int8";
  bench.machine = {{.threads = 1, .read_bytes_per_s = 1, .peaks = {}},
                   {.threads = 2,
                    .read_bytes_per_s = 4000,
                    .peaks = {{"a", "float32", 1e4}, {"b", "int8", 2e5}}}};
  EXPECT_EQ(bench.prefill_tokens_per_s(), 100);  // of the faster run
  EXPECT_EQ(bench.decode_tokens_per_s(), 2);
  EXPECT_EQ(bench.bytes_per_token(), 1000);
  EXPECT_EQ(bench.bandwidth_share(), 0.8);  // of the rate beside the faster run
  EXPECT_EQ(bench.peak_bandwidth_share(), 0.5);
  EXPECT_EQ(bench.matrix_share(), 0.5);
  EXPECT_NE(bench.json().find("\"bandwidth_share\": 0.8000"), std::string::npos);
  EXPECT_NE(bench.table().find("80.0 % of the memory rate"), std::string::npos);
}

TEST(BenchModel, RefusesMoreTokensThanTheContextHolds) {
  OwnedContext context({.threads = 1, .pin = false});
  const auto engine = load_tiny(context, {.context_length = 64});
  ASSERT_NE(engine, nullptr);
  EXPECT_EQ(bench_model(*engine, {.prompt_tokens = 60, .generate_tokens = 5}).status().message(),
            "60 prompt and 5 generated tokens exceed the context of 64");
}

TEST(BenchModel, MachineIsMeasuredUpToTheThreadsAsked) {
  const SteadyClock clock;
  const auto machine = measure_machine(clock, {.threads = 3, .read_bytes = int64_t{16} << 20});
  ASSERT_TRUE(machine.is_ok()) << machine.status().message();
  ASSERT_EQ(machine->size(), 3U);
  EXPECT_EQ((*machine)[0].threads, 1);
  EXPECT_EQ((*machine)[1].threads, 2);
  EXPECT_EQ((*machine)[2].threads, 3);
  for (const MachineRates& rates : *machine) EXPECT_GT(rates.read_bytes_per_s, 0);
}

}  // namespace
}  // namespace motley
