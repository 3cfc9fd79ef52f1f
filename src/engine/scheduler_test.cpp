#include "engine/scheduler.h"

#include <gtest/gtest.h>

#include "base/owned_context.h"
#include "engine/engine_test_util.h"

namespace motley {
namespace {

class SchedulerTest : public testing::Test {
 protected:
  SchedulerTest() : context_({.threads = 2, .pin = false}), engine_(load_tiny(context_, {})) {}

  RecordingListener run(Sequence& sequence, GenerationRequest request,
                        std::ptrdiff_t cancel_after = -1) {
    Scheduler scheduler(*engine_, {});
    RecordingListener listener;
    listener.cancel_after = cancel_after;
    const Status status = scheduler.submit(sequence, std::move(request), listener);
    if (!status.is_ok()) {
      listener.status = status;
      return listener;
    }
    scheduler.run_until_idle();
    return listener;
  }

  OwnedContext context_;
  std::unique_ptr<Engine> engine_;
};

TEST_F(SchedulerTest, LengthAndStopTokensEndAGeneration) {
  Sequence sequence = engine_->create_sequence().value();
  sequence.sync(test_tokens(30, 1));
  GenerationRequest request;
  request.max_new_tokens = 8;
  const RecordingListener whole = run(sequence, request);
  EXPECT_EQ(whole.reason, FinishReason::kLength);
  ASSERT_EQ(whole.tokens.size(), 8u);

  request.stop_tokens = {whole.tokens[5]};
  sequence.sync(test_tokens(30, 1));
  const RecordingListener stopped = run(sequence, request);
  EXPECT_EQ(stopped.reason, FinishReason::kStopToken);
  const auto first = std::find(whole.tokens.begin(), whole.tokens.end(), whole.tokens[5]);
  EXPECT_EQ(stopped.tokens, std::vector<int32_t>(whole.tokens.begin(), first));
}

TEST_F(SchedulerTest, ListenersCancel) {
  Sequence sequence = engine_->create_sequence().value();
  sequence.sync(test_tokens(10, 1));
  const RecordingListener listener = run(sequence, {.max_new_tokens = 100}, 3);
  EXPECT_EQ(listener.reason, FinishReason::kCancelled);
  EXPECT_EQ(listener.tokens.size(), 3u);
}

TEST_F(SchedulerTest, TheContextIsABound) {
  EngineOptions options;
  options.context_length = 40;
  const std::unique_ptr<Engine> small = load_tiny(context_, options);
  Scheduler scheduler(*small, {});
  Sequence sequence = small->create_sequence().value();
  RecordingListener listener;
  sequence.sync(test_tokens(40, 1));
  EXPECT_EQ(scheduler.submit(sequence, {}, listener).message(),
            "the prompt has 40 tokens, the context holds 40 including the answer");
  sequence.sync(test_tokens(35, 1));
  ASSERT_TRUE(scheduler.submit(sequence, {}, listener).is_ok());
  scheduler.run_until_idle();
  EXPECT_EQ(listener.reason, FinishReason::kContextFull);
  EXPECT_EQ(listener.tokens.size(), 5u);
}

TEST_F(SchedulerTest, AContinuedTurnExtendsAndReportsIt) {
  Sequence sequence = engine_->create_sequence().value();
  std::vector<int32_t> tokens = test_tokens(30, 1);
  EXPECT_EQ(sequence.sync(tokens).decision, SyncDecision::kRebuild);
  const RecordingListener first = run(sequence, {.max_new_tokens = 5});
  tokens.insert(tokens.end(), first.tokens.begin(), first.tokens.end());
  const std::vector<int32_t> more = test_tokens(7, 2);
  tokens.insert(tokens.end(), more.begin(), more.end());
  const SyncReport report = sequence.sync(tokens);
  EXPECT_EQ(report.decision, SyncDecision::kExtend);
  EXPECT_EQ(report.reused_tokens, 34);
  EXPECT_EQ(report.pending_tokens, 8);
  const RecordingListener second = run(sequence, {.max_new_tokens = 5});
  EXPECT_EQ(second.stats.reused_tokens, 34);
  EXPECT_EQ(second.stats.prompt_tokens, 8);

  tokens[3] ^= 1;
  EXPECT_EQ(sequence.sync(tokens).reason, "the tokens diverge from the computed ones");
}

TEST_F(SchedulerTest, AFailedStepLosesOnlyItsRequests) {
  Sequence sequence = engine_->create_sequence().value();
  sequence.sync(test_tokens(30, 1));
  const RecordingListener good = run(sequence, {.max_new_tokens = 5});

  sequence.sync(test_tokens(90, 5));
  context_.faults().arm("state.page", 2, resource_exhausted("injected"));
  const RecordingListener failed = run(sequence, {.max_new_tokens = 5});
  EXPECT_EQ(failed.reason, FinishReason::kFailed);
  EXPECT_EQ(failed.status.message(), "injected");

  const SyncReport report = sequence.sync(test_tokens(30, 1));
  EXPECT_EQ(report.reason, "the last step failed");
  EXPECT_EQ(run(sequence, {.max_new_tokens = 5}).tokens, good.tokens);
}

TEST_F(SchedulerTest, BadParametersAreRefusedBeforeWork) {
  Sequence sequence = engine_->create_sequence().value();
  sequence.sync(test_tokens(5, 1));
  GenerationRequest request;
  request.sampling.min_p = 2;
  EXPECT_EQ(run(sequence, request).status.message(), "min_p is 2, allowed are 0 to 1");
}

}  // namespace
}  // namespace motley
