// R5: a row's bits depend on its role, position and profile, never on chunk, threads or company.
#include <gtest/gtest.h>

#include <list>

#include "base/owned_context.h"
#include "engine/engine_test_util.h"
#include "engine/verify/sequence_trace.h"

namespace motley {
namespace {

struct Numerics {
  NumericProfile profile;
  DeltaForm delta;
  const char* fixture = "tiny-qwen35";
};

class Determinism : public testing::TestWithParam<Numerics> {
 protected:
  EngineOptions options() const {
    EngineOptions options;
    options.profile = GetParam().profile;
    options.delta_form = GetParam().delta;
    return options;
  }

  static std::unique_ptr<Engine> load(OwnedContext& context, EngineOptions options) {
    return load_tiny(context, std::move(options), GetParam().fixture);
  }

  // Logits of every prompt row and of some decode rows after it.
  static std::vector<float> all_logits(Engine& engine, int64_t chunk) {
    TraceRequest request;
    request.prompt = test_tokens(200, 3);
    request.continuation = test_tokens(20, 4);
    request.prefill_chunk = chunk;
    return traced_logits(engine, request);
  }
};

TEST_P(Determinism, EveryPrefillChunkGivesTheSameBits) {
  OwnedContext context({.threads = 2, .pin = false});
  const std::unique_ptr<Engine> engine = load(context, options());
  const std::vector<float> whole = all_logits(*engine, 200);
  for (const int64_t chunk : {1, 7, 64, 150}) {
    EXPECT_TRUE(same_bits(all_logits(*engine, chunk), whole)) << "chunk " << chunk;
  }
}

TEST_P(Determinism, ThreadsDoNotMatter) {
  OwnedContext one({.threads = 1});
  const std::vector<float> alone = all_logits(*load(one, options()), 64);
  for (const int threads : {2, 3}) {
    OwnedContext many({.threads = threads, .pin = false});
    EXPECT_TRUE(same_bits(all_logits(*load(many, options()), 64), alone)) << threads;
  }
}

TEST_P(Determinism, WavesOfExpertsDoNotMatter) {
  OwnedContext context({.threads = 2, .pin = false});
  const std::vector<float> resident = all_logits(*load(context, options()), 64);
  for (const int slots : {4, 7}) {
    EngineOptions in_waves = options();
    in_waves.expert_wave_slots = slots;
    EXPECT_TRUE(same_bits(all_logits(*load(context, in_waves), 64), resident)) << slots;
  }
}

// Generates from one prompt, alone or together with others that arrive before and after it.
RecordingListener generate(Engine& engine, int others, int64_t chunk) {
  Scheduler scheduler(engine, {.prefill_chunk = chunk});
  std::list<Sequence> sequences;
  std::list<RecordingListener> listeners;
  const auto submit = [&](int64_t length, uint64_t seed) {
    sequences.push_back(engine.create_sequence().value());
    sequences.back().sync(test_tokens(length, seed));
    listeners.emplace_back();
    GenerationRequest request;
    request.max_new_tokens = 24;
    const Status status = scheduler.submit(sequences.back(), request, listeners.back());
    EXPECT_TRUE(status.is_ok()) << status.message();
    return &listeners.back();
  };
  if (others > 0) submit(90, 11);
  if (others > 0) scheduler.step();
  const RecordingListener* watched = submit(130, 12);
  for (int i = 1; i < others; ++i) submit(20 + 45 * i, 20 + static_cast<uint64_t>(i));
  scheduler.run_until_idle();
  for (const RecordingListener& listener : listeners) EXPECT_TRUE(listener.finished);
  return *watched;
}

TEST_P(Determinism, ASequenceAloneEqualsItselfInCompany) {
  OwnedContext context({.threads = 2, .pin = false});
  const std::unique_ptr<Engine> engine = load(context, options());
  const RecordingListener alone = generate(*engine, 0, 64);
  const RecordingListener together = generate(*engine, 3, 64);
  EXPECT_EQ(alone.tokens, together.tokens);
  EXPECT_TRUE(same_bits(alone.logits, together.logits));
}

TEST_P(Determinism, TheChunkIsHonouredExactly) {
  OwnedContext context({.threads = 2, .pin = false});
  const std::unique_ptr<Engine> engine = load(context, options());
  for (const auto& [chunk, chunks] : {std::pair{1, 130}, {7, 19}, {64, 3}, {512, 1}}) {
    const RecordingListener listener = generate(*engine, 0, chunk);
    EXPECT_EQ(listener.stats.prefill_chunks, chunks);
    EXPECT_EQ(listener.stats.prompt_tokens, 130);
  }
}

TEST_P(Determinism, StreamedExpertsDoNotMatter) {
  OwnedContext context({.threads = 2, .pin = false});
  const std::vector<float> resident = all_logits(*load(context, options()), 64);
  for (const double share : {0.5, 0.35}) {
    EngineOptions streamed = options();
    streamed.expert_cache = {.share = share};
    const std::unique_ptr<Engine> engine = load(context, streamed);
    ASSERT_NE(engine, nullptr);
    EXPECT_TRUE(same_bits(all_logits(*engine, 64), resident)) << share;
  }
}

INSTANTIATE_TEST_SUITE_P(
    Numerics, Determinism,
    testing::Values(Numerics{NumericProfile::kExact, DeltaForm::kRecurrent},
                    Numerics{NumericProfile::kFast, DeltaForm::kRecurrent},
                    Numerics{NumericProfile::kExact, DeltaForm::kChunked},
                    Numerics{NumericProfile::kFast, DeltaForm::kChunked},
                    Numerics{NumericProfile::kExact, DeltaForm::kRecurrent, "tiny-glm52"},
                    Numerics{NumericProfile::kFast, DeltaForm::kRecurrent, "tiny-glm52"},
                    Numerics{NumericProfile::kExact, DeltaForm::kRecurrent, "tiny-glm53"},
                    Numerics{NumericProfile::kFast, DeltaForm::kRecurrent, "tiny-glm53"},
                    Numerics{NumericProfile::kFast, DeltaForm::kChunked, "tiny-glm53"}),
    [](const testing::TestParamInfo<Numerics>& tested) {
      std::string name = tested.param.fixture;
      std::replace(name.begin(), name.end(), '-', '_');
      return name + "_" + std::string(numeric_profile_name(tested.param.profile)) +
             (tested.param.delta == DeltaForm::kChunked ? "_chunked" : "_recurrent");
    });

}  // namespace
}  // namespace motley
