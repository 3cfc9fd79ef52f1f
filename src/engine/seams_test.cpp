// The seams of the design, each tested so that bypassing it would fail.
#include <gtest/gtest.h>

#include <map>

#include "base/owned_context.h"
#include "engine/engine_test_util.h"
#include "engine/step_runner.h"

namespace motley {
namespace {

// Replaces every partial output by zero: what is left of the model is embedding, norm and head.
class ZeroingCollective final : public Collective {
 public:
  int rank() const override { return 0; }
  int ranks() const override { return 1; }
  Status all_reduce_sum(std::span<float> values) override {
    std::fill(values.begin(), values.end(), 0.0f);
    ++calls;
    return failing ? io_error("peer 1 is gone") : Status::ok();
  }
  Status all_reduce_sum(std::span<double>) override { return Status::ok(); }
  Status all_gather(std::span<const std::byte>, std::span<std::byte>) override {
    return Status::ok();
  }
  Status barrier() override { return Status::ok(); }

  int calls = 0;
  bool failing = false;
};

std::vector<float> last_logits(Engine& engine, const std::vector<int32_t>& tokens) {
  Sequence sequence = engine.create_sequence().value();
  StepRunner runner(engine);
  StepObserver observer;
  Batch batch;
  batch.add(RowRole::kPrefill, sequence.state(), tokens, {0});
  const std::vector<int32_t> rows = {static_cast<int32_t>(tokens.size()) - 1};
  std::vector<float> logits;
  EXPECT_TRUE(runner.run(batch, rows, observer, &logits).is_ok());
  return logits;
}

TEST(Seams, EveryMixerAndFeedForwardPassesTheCollective) {
  OwnedContext context({.threads = 1});
  ZeroingCollective collective;
  EngineOptions options;
  options.collective = &collective;
  const std::unique_ptr<Engine> engine = load_tiny(context, options);
  // Without mixers and experts the past cannot matter.
  EXPECT_TRUE(same_bits(last_logits(*engine, {5, 9, 33}), last_logits(*engine, {100, 33})));
  EXPECT_EQ(collective.calls, 2 * 2 * engine->decoder().layers());
}

TEST(Seams, ALostPeerFailsTheRequest) {
  OwnedContext context({.threads = 1});
  ZeroingCollective collective;
  collective.failing = true;
  EngineOptions options;
  options.collective = &collective;
  const std::unique_ptr<Engine> engine = load_tiny(context, options);
  Sequence sequence = engine->create_sequence().value();
  sequence.sync(test_tokens(5, 1));
  Scheduler scheduler(*engine, {});
  RecordingListener listener;
  ASSERT_TRUE(scheduler.submit(sequence, {}, listener).is_ok());
  scheduler.run_until_idle();
  EXPECT_EQ(listener.status.message(), "peer 1 is gone");
}

// Layer-major: all chunks through one layer before the next, as a streamed prefill does it.
TEST(Seams, LayerMajorEqualsChunkMajor) {
  OwnedContext context({.threads = 2, .pin = false});
  const std::unique_ptr<Engine> engine = load_tiny(context, {});
  const std::vector<int32_t> tokens = test_tokens(100, 8);
  const std::vector<float> chunk_major = last_logits(*engine, tokens);

  const Decoder& decoder = engine->decoder();
  Sequence sequence = engine->create_sequence().value();
  StepRunner runner(*engine);
  StepContext& step = runner.step_context();
  StepObserver observer;
  constexpr int64_t kChunk = 33;
  std::vector<Batch> chunks;
  for (int64_t begin = 0; begin < std::ssize(tokens); begin += kChunk) {
    const auto rows = static_cast<size_t>(std::min(kChunk, std::ssize(tokens) - begin));
    chunks.emplace_back();
    chunks.back().add(RowRole::kPrefill, sequence.state(),
                      std::span(tokens).subspan(static_cast<size_t>(begin), rows), {begin});
    ASSERT_TRUE(chunks.back().reserve().is_ok());
  }
  const Arena::Scope scope(step.stream.scratch());
  const TensorView hidden = step.scratch({std::ssize(tokens), decoder.hidden_size()});
  decoder.embed(step, tokens, hidden);
  for (int layer = 0; layer < decoder.layers(); ++layer) {
    for (size_t i = 0; i < chunks.size(); ++i) {
      const TensorView rows = hidden.slice_rows(static_cast<int64_t>(i) * kChunk, chunks[i].rows());
      ASSERT_TRUE(decoder.run_layer(layer, step, chunks[i], rows, observer).is_ok());
    }
  }
  const TensorView last = hidden.slice_rows(std::ssize(tokens) - 1, 1);
  const PostNormHidden normed = decoder.final_norm(step, PreNormHidden{last}, last);
  std::vector<float> logits(static_cast<size_t>(decoder.vocab_size()));
  decoder.logits(step, normed, {.decode = 0, .prefill = 1},
                 view_of(logits.data(), {1, decoder.vocab_size()}));
  EXPECT_TRUE(same_bits(logits, chunk_major));
}

class StateEvents final : public StepObserver {
 public:
  void state_ready(int layer, StateKind kind, SequenceState& state, TokenRange tokens) override {
    EXPECT_NE(state.layout().find(layer, kind), nullptr);
    int64_t& end = ends[{layer, kind}];
    EXPECT_EQ(tokens.begin.value, end) << "ranges follow each other without a gap";
    end = tokens.end.value;
  }
  std::map<std::pair<int, StateKind>, int64_t> ends;
};

TEST(Seams, StateEventsCoverEveryPieceOfTheLayout) {
  OwnedContext context({.threads = 1});
  const std::unique_ptr<Engine> engine = load_tiny(context, {});
  Sequence sequence = engine->create_sequence().value();
  StepRunner runner(*engine);
  StateEvents events;
  std::vector<float> logits;
  const std::vector<int32_t> tokens = test_tokens(50, 8);
  for (const int64_t begin : {0, 20}) {
    Batch batch;
    const auto rows = std::span(tokens).subspan(static_cast<size_t>(begin), begin == 0 ? 20u : 30u);
    batch.add(RowRole::kPrefill, sequence.state(), rows, {begin});
    ASSERT_TRUE(runner.run(batch, {}, events, &logits).is_ok());
  }
  EXPECT_EQ(events.ends.size(), engine->layout().entries.size());
  for (const auto& [piece, end] : events.ends) EXPECT_EQ(end, 50);
}

TEST(Seams, ASequenceHoldsWhatTheLayoutSays) {
  OwnedContext context({.threads = 1});
  const std::unique_ptr<Engine> engine = load_tiny(context, {});
  Sequence sequence = engine->create_sequence().value();
  ASSERT_TRUE(sequence.state().reserve(65).is_ok());
  EXPECT_EQ(sequence.state().bytes(), engine->layout().bytes_for(65));
  EXPECT_EQ(engine->pool().used_bytes(), engine->layout().bytes_for(65));
}

TEST(Seams, AMissingOpIsAStartUpError) {
  OpTable table = reference_op_table();
  table.attention.attend = nullptr;
  EXPECT_EQ(check_complete(table, {}).message(), "backend reference lacks the ops attend");
}

}  // namespace
}  // namespace motley
