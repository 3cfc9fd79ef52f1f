// Streamed equals resident, bit for bit, whatever the cache holds and however reads arrive.
#include <gtest/gtest.h>

#include "base/owned_context.h"
#include "engine/engine_test_util.h"
#include "engine/stream_report.h"
#include "support/test_files.h"

namespace motley {
namespace {

std::vector<float> all_logits(Engine& engine, int64_t chunk = 64) {
  TraceRequest request;
  request.prompt = test_tokens(70, 3);
  request.continuation = test_tokens(12, 4);
  request.prefill_chunk = chunk;
  return traced_logits(engine, request);
}

double least_share(const Engine& engine) {
  const MemoryNeeds& needs = engine.memory_plan().needs;
  return static_cast<double>(needs.floor_slots()) / static_cast<double>(needs.expert_count);
}

class Streaming : public testing::TestWithParam<NumericProfile> {};

TEST_P(Streaming, EveryCacheSizeGivesTheBitsOfTheResidentModel) {
  OwnedContext context({.threads = 2, .pin = false});
  const auto resident = load_tiny(context, {.profile = GetParam()});
  ASSERT_NE(resident, nullptr);
  ASSERT_EQ(resident->streamed_experts(), nullptr);
  const std::vector<float> expected = all_logits(*resident);
  for (const double share : {1.0, 0.5, 0.25, least_share(*resident)}) {
    if (share < least_share(*resident)) continue;
    const auto streamed =
        load_tiny(context, {.profile = GetParam(), .expert_cache = {.share = share}});
    ASSERT_NE(streamed, nullptr);
    ASSERT_NE(streamed->streamed_experts(), nullptr);
    EXPECT_TRUE(same_bits(all_logits(*streamed), expected)) << share;
    if (share < 0.3) {
      EXPECT_TRUE(same_bits(all_logits(*streamed, 7), expected)) << share << " in chunks of 7";
    }
    const StreamStats stats = streamed->streamed_experts()->stats();
    EXPECT_GT(stats.read_bytes, 0);
    EXPECT_GT(stats.uses, stats.hits);
  }
}

INSTANTIATE_TEST_SUITE_P(Profiles, Streaming,
                         testing::Values(NumericProfile::kExact, NumericProfile::kFast));

// Prompt and answer through the scheduler, which sweeps long prompts of streamed models.
RecordingListener generate(Engine& engine, int64_t prompt_tokens, SchedulerOptions options) {
  Sequence sequence = engine.create_sequence().value();
  sequence.sync(test_tokens(prompt_tokens, 5));
  Scheduler scheduler(engine, std::move(options));
  RecordingListener listener;
  EXPECT_TRUE(scheduler.submit(sequence, {.max_new_tokens = 4}, listener).is_ok());
  scheduler.run_until_idle();
  return listener;
}

TEST_P(Streaming, ASweptPromptGivesTheSameBits) {
  OwnedContext context({.threads = 2, .pin = false});
  const auto resident = load_tiny(context, {.profile = GetParam()});
  ASSERT_NE(resident, nullptr);
  const RecordingListener expected = generate(*resident, 130, {.prefill_chunk = 32});
  for (const double share : {1.0, 0.6, least_share(*resident)}) {
    const auto streamed =
        load_tiny(context, {.profile = GetParam(), .expert_cache = {.share = share}});
    ASSERT_NE(streamed, nullptr);
    ASSERT_TRUE(choose_sweep(streamed->memory_plan().needs, 130, 32).sweep);
    const RecordingListener swept = generate(*streamed, 130, {.prefill_chunk = 32});
    EXPECT_EQ(swept.status.message(), "");
    EXPECT_TRUE(same_bits(swept.logits, expected.logits)) << share;
    EXPECT_EQ(swept.stats.prefill_chunks, expected.stats.prefill_chunks);
    EXPECT_EQ(swept.stats.prompt_tokens, 130);
    const StreamStats stats = streamed->streamed_experts()->stats();
    if (share == 1.0) {
      EXPECT_EQ(stats.evictions, 0);
      EXPECT_LE(stats.read_bytes, 2 * streamed->memory_plan().needs.expert_bytes);
    }
  }
}

TEST(StreamingSweep, CanBeInterruptedBetweenLayers) {
  OwnedContext context({.threads = 1, .pin = false});
  const auto streamed = load_tiny(context, {.expert_cache = {.share = 0.6}});
  ASSERT_NE(streamed, nullptr);
  int asked = 0;
  const RecordingListener stopped = generate(
      *streamed, 130, {.prefill_chunk = 32, .is_interrupted = [&] { return ++asked == 2; }});
  EXPECT_EQ(asked, 2);
  EXPECT_EQ(stopped.reason, FinishReason::kCancelled);
  EXPECT_TRUE(stopped.tokens.empty());
  const auto resident = load_tiny(context, {});
  EXPECT_EQ(generate(*streamed, 130, {}).tokens, generate(*resident, 130, {}).tokens);
}

TEST(StreamingFaults, AReadThatSucceedsTheSecondTimeChangesNothing) {
  OwnedContext context({.threads = 1, .pin = false});
  const std::vector<float> expected = all_logits(*load_tiny(context, {}));
  const auto streamed =
      load_tiny(context, {.expert_cache = {.share = 0.5}, .io = ReadBackendKind::kPread});
  ASSERT_NE(streamed, nullptr);
  context.faults().arm("io.stream.read", 5, io_error("drive", EIO));
  EXPECT_TRUE(same_bits(all_logits(*streamed), expected));
  EXPECT_EQ(streamed->streamed_experts()->stats().retries, 1);
}

TEST(StreamingFaults, AReadThatFailsTwiceFailsItsRequestOnly) {
  OwnedContext context({.threads = 1, .pin = false});
  const auto streamed = load_tiny(context, {.expert_cache = {.share = 0.5}});
  ASSERT_NE(streamed, nullptr);
  context.faults().arm("io.stream.read", 3, io_error("drive", EIO));
  context.faults().arm("io.stream.retry", 1, io_error("drive", EIO));
  const auto run = [&] {
    Sequence sequence = streamed->create_sequence().value();
    sequence.sync(test_tokens(1, 3));  // too short to be swept
    Scheduler scheduler(*streamed, {});
    RecordingListener listener;
    EXPECT_TRUE(scheduler.submit(sequence, {.max_new_tokens = 3}, listener).is_ok());
    scheduler.run_until_idle();
    return std::pair(listener.reason, listener.status.message());
  };
  const auto [reason, message] = run();
  EXPECT_EQ(reason, FinishReason::kFailed);
  EXPECT_NE(message.find("model.safetensors"), std::string::npos) << message;
  EXPECT_EQ(run().first, FinishReason::kLength);
}

TEST(StreamingPlan, TheReferenceStreamsToo) {
  OwnedContext context({.threads = 2, .pin = false});
  const auto resident = load_tiny(context, {.reference = true});
  const auto streamed = load_tiny(context, {.reference = true, .expert_cache = {.share = 0.5}});
  ASSERT_NE(streamed, nullptr);
  EXPECT_TRUE(same_bits(all_logits(*streamed), all_logits(*resident)));
}

TEST(StreamingPlan, WeightsOtherThanExpertsHaveMemoryOfTheirOwn) {
  OwnedContext context({.threads = 1, .pin = false});
  const auto streamed = load_tiny(context, {.expert_cache = {.share = 0.5}});
  ASSERT_NE(streamed, nullptr);
  for (const PlacementRow& row : streamed->model().placement.rows) {
    EXPECT_NE(row.where, PlacementKind::kMapped) << row.name;
    const bool is_streamed = row.where == PlacementKind::kStreamed;
    EXPECT_EQ(is_streamed, row.name.find(".experts.") != std::string::npos) << row.name;
  }
}

TEST(StreamingReport, SaysWhatWasRead) {
  OwnedContext context({.threads = 1, .pin = false});
  const auto streamed = load_tiny(context, {.expert_cache = {.share = 0.5}});
  ASSERT_NE(streamed, nullptr);
  const StreamMeter meter(*streamed);
  (void)all_logits(*streamed);
  const StreamStretch stretch = meter.stretch(82);
  EXPECT_GT(stretch.seconds, 0);
  const std::string text = stream_text(*streamed, stretch);
  EXPECT_TRUE(text.starts_with("streamed: 4 experts a token, ")) << text;
  EXPECT_NE(stream_json(*streamed, stretch).find("\"tokens\": 82}"), std::string::npos);

  // The share of a probe that is known.
  StreamStretch known = stretch;
  known.stats.read_bytes = 3'000'000'000;
  known.stats.busy_s = 2;
  known.probed_bytes_per_s = 2e9;
  EXPECT_NE(stream_text(*streamed, known).find("1.50 GB/s while reading, 75 % of its probe;"),
            std::string::npos);
  EXPECT_NE(stream_json(*streamed, known).find("\"probed_share\": 0.7500"), std::string::npos);
  known.probed_bytes_per_s = 0;
  EXPECT_EQ(stream_text(*streamed, known).find("probe"), std::string::npos);
  EXPECT_NE(stream_json(*streamed, known).find("\"probed_share\": null"), std::string::npos);

  const auto resident = load_tiny(context, {});
  EXPECT_EQ(stream_text(*resident, StreamMeter(*resident).stretch(1)), "");
  EXPECT_EQ(stream_json(*resident, StreamMeter(*resident).stretch(1)), "null");
}

TEST(StreamingReport, FindsTheProbeThatWasKept) {
  OwnedContext context({.threads = 1, .pin = false});
  const auto streamed = load_tiny(context, {.expert_cache = {.share = 0.5}});
  ASSERT_NE(streamed, nullptr);
  const TemporaryDirectory directory;
  EXPECT_EQ(StreamMeter(*streamed, directory / "d.json").stretch(1).probed_bytes_per_s, 0);
  const DriveProbe probe{.drive = *drive_identity(tiny_fixture()),
                         .backend = "pread",
                         .record_class_bytes = 4096,
                         .random = {{1, 5e8}, {2, 7e8}},
                         .sequential_bytes_per_second = 9e8};
  directory.write("d.json", format_drive_probes({&probe, 1}));
  EXPECT_EQ(StreamMeter(*streamed, directory / "d.json").stretch(1).probed_bytes_per_s, 7e8);
}

// Another model than the one trained, and labelled as one; streamed as resident.
TEST(FewerExperts, AreLossyAndSaySo) {
  OwnedContext context({.threads = 2, .pin = false});
  const auto whole = load_tiny(context, {});
  const auto fewer = load_tiny(context, {.experts_per_token = 1});
  const auto streamed =
      load_tiny(context, {.expert_cache = {.share = 0.5}, .experts_per_token = 1});
  ASSERT_TRUE(whole != nullptr && fewer != nullptr && streamed != nullptr);
  EXPECT_EQ(whole->numerics_name().find("LOSSY"), std::string::npos);
  EXPECT_NE(fewer->numerics_name().find("LOSSY: 1 of the model's"), std::string::npos);
  EXPECT_FALSE(same_bits(all_logits(*whole), all_logits(*fewer)));
  EXPECT_TRUE(same_bits(all_logits(*streamed), all_logits(*fewer)));
}

TEST(FewerExperts, MoreThanTheModelsAreRefused) {
  OwnedContext context({.threads = 1, .pin = false});
  const auto whole = load_tiny(context, {});
  ASSERT_NE(whole, nullptr);
  const auto& moe = std::get<MoeSpec>(whole->spec().layers.front().feed_forward);
  EngineOptions options{.model = tiny_fixture(), .experts_per_token = moe.experts_per_token};
  const auto refused = Engine::load(context.get(), options);
  ASSERT_FALSE(refused.is_ok());
  EXPECT_EQ(refused.status().code(), StatusCode::kInvalidArgument);
}

}  // namespace
}  // namespace motley
