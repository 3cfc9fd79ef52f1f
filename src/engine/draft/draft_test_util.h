// Shared by the tests of drafts: a generation with any number of them, everything recorded.
#pragma once

#include <cstdlib>
#include <string>
#include <vector>

#include "engine/engine_test_util.h"

namespace motley {

// Tokens and log-probabilities as they came.
class DraftTestListener final : public GenerationListener {
 public:
  bool on_token(const SampledToken& token) override {
    tokens.push_back(token.token);
    logprobs.push_back(token.logprob);
    for (const TokenLogprob& other : token.top) logprobs.push_back(other.logprob);
    return std::ssize(tokens) != cancel_after;
  }
  void on_finish(FinishReason why, const Status& final_status,
                 const GenerationStats& final_stats) override {
    reason = why;
    status = final_status;
    stats = final_stats;
  }
  void on_logits(std::span<const float> values, int64_t position) override {
    positions.push_back(position);
    uint64_t hash = logits_hash;
    for (const float value : values) hash = 31 * hash + std::bit_cast<uint32_t>(value);
    logits_hash = hash;
  }

  std::vector<int32_t> tokens;
  std::vector<double> logprobs;
  std::vector<int64_t> positions;
  uint64_t logits_hash = 7;
  FinishReason reason = FinishReason::kFailed;
  Status status;
  GenerationStats stats;
  std::ptrdiff_t cancel_after = -1;
};

inline EngineOptions with_drafts(EngineOptions options, int drafts) {
  options.drafts = drafts > 0;
  options.draft_tokens = drafts;
  return options;
}

struct DraftRun {
  GenerationRequest request;
  SchedulerOptions options;
  std::ptrdiff_t cancel_after = -1;
};

// Continues a sequence whose pending tokens are the prompt.
inline DraftTestListener generate_on(Engine& engine, Sequence& sequence, DraftRun run) {
  Scheduler scheduler(engine, run.options);
  DraftTestListener listener;
  listener.cancel_after = run.cancel_after;
  const Status status = scheduler.submit(sequence, std::move(run.request), listener);
  EXPECT_TRUE(status.is_ok()) << status.message();
  if (status.is_ok()) scheduler.run_until_idle();
  EXPECT_TRUE(listener.status.is_ok()) << listener.status.message();
  return listener;
}

inline DraftTestListener generate(Engine& engine, const std::vector<int32_t>& prompt,
                                  DraftRun run) {
  Sequence sequence = engine.create_sequence().value();
  sequence.sync(prompt);
  return generate_on(engine, sequence, std::move(run));
}

// Guesses by someone who knows the answer, half of which are replaced by random tokens (or, of the
// draft layer, by its own): a random checkpoint's draft layer is never right.
inline ReplaceGuess half_random(int64_t vocab) {
  return [vocab](int64_t position, int32_t token) {
    const auto at = static_cast<uint64_t>(position);
    if (uniform_at(101, at) < 0.5) return token;
    return static_cast<int32_t>(uniform_at(102, at) * static_cast<double>(vocab));
  };
}
// `known` are the tokens from position `first` on; wrong in a share of all positions.
inline ReplaceGuess oracle(std::vector<int32_t> known, int64_t first, double wrong, int64_t vocab) {
  return [=](int64_t position, int32_t) {
    const auto at = static_cast<uint64_t>(position);
    const int64_t index = position - first;
    if (uniform_at(103, at) >= wrong && index >= 0 && index < std::ssize(known)) {
      return known[static_cast<size_t>(index)];
    }
    return static_cast<int32_t>(uniform_at(104, at) * static_cast<double>(vocab));
  };
}

// Same tokens, probabilities and logits, in the same order.
inline testing::AssertionResult same_output(const DraftTestListener& actual,
                                            const DraftTestListener& expected) {
  if (actual.tokens != expected.tokens) {
    const auto [a, b] = std::mismatch(actual.tokens.begin(), actual.tokens.end(),
                                      expected.tokens.begin(), expected.tokens.end());
    return testing::AssertionFailure()
           << "tokens differ from " << a - actual.tokens.begin() << " on, " << actual.tokens.size()
           << " and " << expected.tokens.size() << " of them";
  }
  if (actual.logprobs != expected.logprobs) return testing::AssertionFailure() << "logprobs";
  if (actual.positions != expected.positions) return testing::AssertionFailure() << "positions";
  if (actual.logits_hash != expected.logits_hash) return testing::AssertionFailure() << "logits";
  if (actual.reason != expected.reason) return testing::AssertionFailure() << "reason";
  return testing::AssertionSuccess();
}

// A number from the environment, for the long form of a test.
inline int64_t from_environment(const char* name, int64_t usual) {
  const char* text = std::getenv(name);
  return text != nullptr && *text != '\0' ? std::atoll(text) : usual;
}

}  // namespace motley
