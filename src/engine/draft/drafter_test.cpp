// What ends a generation inside a draft, several requests at once, and turns that go on.
#include "engine/draft/drafter.h"

#include <gtest/gtest.h>

#include "base/owned_context.h"
#include "engine/draft/draft_test_util.h"
#include "support/model_files.h"

namespace motley {
namespace {

class DrafterTest : public testing::Test {
 protected:
  DrafterTest()
      : context_({.threads = 1, .pin = false}), engine_(load_tiny(context_, with_drafts({}, 8))) {}

  DraftTestListener run(const DraftRun& draft_run, uint64_t prompt = 8) {
    return generate(*engine_, test_tokens(20, prompt), draft_run);
  }

  OwnedContext context_;
  std::unique_ptr<Engine> engine_;
};

TEST_F(DrafterTest, CountsAreConsistent) {
  const DraftTestListener plain = run({.request = {.max_new_tokens = 200}});
  DraftRun knowing{.request = {.max_new_tokens = 200}, .options = {.drafts = 4}};
  knowing.options.replace_guess = oracle(plain.tokens, 20, 0.3, 512);
  const DraftTestListener all = run(knowing);
  const DraftStats& stats = all.stats.drafts;
  EXPECT_GT(stats.steps(), 10);
  EXPECT_EQ(stats.tried[0], stats.steps());
  for (size_t place = 0; place + 1 < 4; ++place) {
    EXPECT_LE(stats.accepted[place], stats.tried[place]);
    EXPECT_LE(stats.tried[place + 1], stats.accepted[place]);
  }
  EXPECT_EQ(stats.tried[4], 0);
  int64_t by_steps = 0;
  for (size_t count = 0; count < stats.by_accepted.size(); ++count) {
    by_steps += static_cast<int64_t>(count) * stats.by_accepted[count];
  }
  EXPECT_EQ(by_steps, stats.accepted_total());
}

// -n, a stop token, a listener that wants no more and the context, each wherever it falls in a
// draft: the sequence ends with the same tokens, all but the last computed, as without drafts.
TEST_F(DrafterTest, EndsInsideADraft) {
  const DraftTestListener whole = run({.request = {.max_new_tokens = 60}});
  for (int64_t end = 1; end <= 24; ++end) {
    for (const int drafts : {3, 8}) {
      SCOPED_TRACE(testing::Message() << end << " tokens, " << drafts << " drafts");
      std::vector<DraftRun> runs(3, {.request = {.max_new_tokens = end}});
      runs[1].request = {.max_new_tokens = 60,
                         .stop_tokens = {whole.tokens[static_cast<size_t>(end)]}};
      runs[2].request = {.max_new_tokens = 60};
      runs[2].cancel_after = end;
      for (DraftRun& one : runs) {
        one.options.drafts = 0;
        Sequence plain = engine_->create_sequence().value();
        Sequence drafted = engine_->create_sequence().value();
        plain.sync(test_tokens(20, 8));
        drafted.sync(test_tokens(20, 8));
        const DraftTestListener expected = generate_on(*engine_, plain, one);
        one.options.drafts = drafts;
        one.options.replace_guess = oracle(whole.tokens, 20, 0.1, 512);
        EXPECT_TRUE(same_output(generate_on(*engine_, drafted, one), expected));
        one.options = {};
        EXPECT_TRUE(std::equal(plain.tokens().begin(), plain.tokens().end(),
                               drafted.tokens().begin(), drafted.tokens().end()));
        EXPECT_EQ(drafted.computed_tokens(), plain.computed_tokens());
      }
    }
  }
}

TEST_F(DrafterTest, NoDraftsBeyondTheContext) {
  OwnedContext context({.threads = 1, .pin = false});
  EngineOptions options = with_drafts({}, 8);
  options.context_length = 50;
  const auto engine = load_tiny(context, options);
  const DraftTestListener expected = generate(*engine, test_tokens(20, 8), {});
  EXPECT_EQ(expected.reason, FinishReason::kContextFull);
  for (const int drafts : {1, 8}) {
    EXPECT_TRUE(same_output(generate(*engine, test_tokens(20, 8), {.options = {.drafts = drafts}}),
                            expected));
  }
}

// A conversation: the second turn begins with the pending token, or with another one there.
TEST_F(DrafterTest, TurnsGoOn) {
  const std::vector<int32_t> first_turn = run({.request = {.max_new_tokens = 17}}).tokens;
  for (const bool keeps_pending : {true, false}) {
    std::vector<DraftTestListener> second;
    for (const int drafts : {0, 3}) {
      Sequence sequence = engine_->create_sequence().value();
      sequence.sync(test_tokens(20, 8));
      DraftRun turn{.request = {.max_new_tokens = 17}, .options = {.drafts = drafts}};
      if (drafts > 0) turn.options.replace_guess = oracle(first_turn, 20, 0.3, 512);
      (void)generate_on(*engine_, sequence, turn);
      std::vector<int32_t> tokens(sequence.tokens().begin(), sequence.tokens().end());
      if (!keeps_pending) tokens.back() = (tokens.back() + 1) % 512;
      for (const int32_t token : test_tokens(9, 21)) tokens.push_back(token);
      EXPECT_EQ(sequence.sync(tokens).decision, SyncDecision::kExtend);
      turn.request.max_new_tokens = 80;
      second.push_back(generate_on(*engine_, sequence, turn));
      if (drafts == 0) continue;
      EXPECT_EQ(sequence.state().draft_length(), sequence.computed_tokens());
      EXPECT_GT(second.back().stats.drafts.steps(), 0);
    }
    EXPECT_TRUE(same_output(second[1], second[0])) << keeps_pending;
  }
}

// A turn without drafts leaves a gap in the draft layer's cache: the next one does without.
TEST_F(DrafterTest, AGapMeansNoDrafts) {
  Sequence sequence = engine_->create_sequence().value();
  sequence.sync(test_tokens(20, 8));
  DraftRun turn{.request = {.max_new_tokens = 10}};
  (void)generate_on(*engine_, sequence, turn);
  turn.options.drafts = 3;
  std::vector<int32_t> tokens(sequence.tokens().begin(), sequence.tokens().end());
  tokens.push_back(4);
  sequence.sync(tokens);
  EXPECT_EQ(generate_on(*engine_, sequence, turn).stats.drafts.steps(), 0);
  sequence.sync(test_tokens(20, 9));  // rebuilt
  EXPECT_GT(generate_on(*engine_, sequence, turn).stats.drafts.steps(), 0);
}

// The cache of the draft layer does not depend on how the prompt came.
TEST_F(DrafterTest, ChunksOfThePromptDoNotMatter) {
  DraftRun one{.request = {.max_new_tokens = 60}, .options = {.drafts = 4}};
  const DraftTestListener whole = run(one);
  for (const int64_t chunk : {1, 7, 19}) {
    one.options.prefill_chunk = chunk;
    const DraftTestListener pieces = run(one);
    EXPECT_TRUE(same_output(pieces, whole)) << chunk;
    EXPECT_EQ(pieces.stats.drafts.by_accepted, whole.stats.drafts.by_accepted) << chunk;
  }
}

TEST_F(DrafterTest, RequestsOfABatchDoNotMatterToEachOther) {
  std::vector<DraftTestListener> alone;
  for (uint64_t prompt = 0; prompt < 3; ++prompt) {
    alone.push_back(run({.request = {.sampling = {.temperature = prompt == 1 ? 0.9 : 0.0},
                                     .max_new_tokens = 25 + 9 * static_cast<int64_t>(prompt)},
                         .options = {.drafts = 3}},
                        prompt));
  }
  Scheduler scheduler(*engine_, {.prefill_chunk = 13, .drafts = 3});
  std::vector<Sequence> sequences;
  std::vector<DraftTestListener> listeners(3);
  for (uint64_t prompt = 0; prompt < 3; ++prompt) {
    sequences.push_back(engine_->create_sequence().value());
    sequences.back().sync(test_tokens(20, prompt));
  }
  for (size_t i = 0; i < 3; ++i) {
    GenerationRequest request{.sampling = {.temperature = i == 1 ? 0.9 : 0.0},
                              .max_new_tokens = 25 + 9 * static_cast<int64_t>(i)};
    ASSERT_TRUE(scheduler.submit(sequences[i], request, listeners[i]).is_ok());
    scheduler.step();
  }
  scheduler.run_until_idle();
  for (size_t i = 0; i < 3; ++i) {
    EXPECT_TRUE(same_output(listeners[i], alone[i])) << i;
    EXPECT_EQ(listeners[i].stats.drafts.by_accepted, alone[i].stats.drafts.by_accepted) << i;
  }
}

TEST_F(DrafterTest, AutoGivesTheSameTokens) {
  const DraftTestListener expected = run({.request = {.max_new_tokens = 120}});
  DraftGovernor governor;
  DraftRun with_governor{.request = {.max_new_tokens = 120},
                         .options = {.drafts = 8, .governor = &governor}};
  EXPECT_TRUE(same_output(run(with_governor), expected));
  EXPECT_GT(governor.seconds(0), 0);
  EXPECT_GT(governor.seconds(8), 0);
}

// A governor may make no drafts for a while; the draft layer then takes many rows at once, and a
// turn that ends or is stopped meanwhile leaves no gap.
TEST_F(DrafterTest, RestsWithoutAGap) {
  const DraftTestListener plain = run({.request = {.max_new_tokens = 150}});
  for (const bool is_stopped : {false, true}) {
    DraftGovernor governor;
    for (int i = 0; i < 10; ++i) {
      governor.note_cost(0, {.seconds = 1e-9});
      governor.note_cost(5, {.seconds = 1e9});
    }
    Sequence sequence = engine_->create_sequence().value();
    sequence.sync(test_tokens(20, 8));
    Scheduler scheduler(*engine_, {.drafts = 5, .governor = &governor});
    DraftTestListener listener;
    ASSERT_TRUE(scheduler.submit(sequence, {.max_new_tokens = 150}, listener).is_ok());
    while (!scheduler.is_idle()) {
      if (is_stopped && listener.tokens.size() == 90) scheduler.cancel_all();
      scheduler.step();
    }
    EXPECT_TRUE(std::equal(listener.tokens.begin(), listener.tokens.end(), plain.tokens.begin()));
    EXPECT_EQ(listener.tokens.size(), is_stopped ? 90U : 150U);
    EXPECT_GE(sequence.state().draft_length(), sequence.computed_tokens() - 1);
  }
}

// A step that fails, in the trunk or in the draft layer, ends the answer with its reason; the next
// one starts anew and is right.
TEST_F(DrafterTest, AFailureAnywhereLosesOneAnswer) {
  DraftRun one{.request = {.max_new_tokens = 12}, .options = {.prefill_chunk = 30, .drafts = 3}};
  EngineOptions options = with_drafts({}, 3);
  options.expert_cache = {.share = 0.3};
  const auto streamed = load_tiny(context_, options);
  for (Engine* engine : {engine_.get(), streamed.get()}) {
    const std::vector<int32_t> expected = generate(*engine, test_tokens(58, 8), one).tokens;
    const bool is_streamed = engine->streamed_experts() != nullptr;
    int failures = 0;
    for (int nth = 1; nth <= 40; ++nth) {
      Sequence sequence = engine->create_sequence().value();
      sequence.sync(test_tokens(58, 8));
      if (is_streamed) {
        context_.faults().arm("io.stream.read", 9 * nth, io_error("drive", EIO));
        context_.faults().arm("io.stream.retry", 1, io_error("drive", EIO));
      } else {
        context_.faults().arm("state.page", nth, resource_exhausted("injected"));
      }
      Scheduler scheduler(*engine, one.options);
      DraftTestListener listener;
      ASSERT_TRUE(scheduler.submit(sequence, one.request, listener).is_ok());
      scheduler.run_until_idle();
      context_.faults().clear();
      if (listener.reason == FinishReason::kFailed) {
        ++failures;
        EXPECT_FALSE(listener.status.is_ok());
        EXPECT_EQ(sequence.sync(test_tokens(58, 8)).reason, "the last step failed");
        EXPECT_EQ(generate_on(*engine, sequence, one).tokens, expected);
      } else {
        EXPECT_EQ(listener.tokens, expected);
      }
    }
    EXPECT_GT(failures, 5) << (is_streamed ? "streamed" : "resident");
  }
}

TEST(DraftEngine, ACheckpointWithoutADraftLayerIsRefused) {
  const TemporaryDirectory directory;
  write_model(TestModel({.draft = false}), directory);
  OwnedContext context({.threads = 1, .pin = false});
  const auto refused = Engine::load(context.get(), with_drafts({.model = directory.path()}, 2));
  ASSERT_FALSE(refused.is_ok());
  EXPECT_EQ(refused.status().code(), StatusCode::kUnsupported);
  EXPECT_NE(refused.status().message().find("has no draft layer"), std::string::npos);
}

TEST(DraftEngine, WantsADraftLayerAndOpsThatRollBack) {
  OwnedContext context({.threads = 1, .pin = false});
  const auto engine = load_tiny(context, with_drafts({}, 2));
  ASSERT_NE(engine, nullptr);
  EXPECT_NE(engine->layout().find(0, StateKind::kReplayRing), nullptr);
  const auto plain = load_tiny(context, {});
  EXPECT_EQ(plain->layout().find(0, StateKind::kReplayRing), nullptr);
}

}  // namespace
}  // namespace motley
