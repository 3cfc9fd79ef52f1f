// Shared by the engine's tests: the fixture, engines over it, listeners that record.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <bit>

#include <memory>
#include <string>
#include <vector>

#include "base/owned_context.h"
#include "engine/engine.h"
#include "engine/scheduler.h"
#include "engine/verify/sequence_trace.h"

namespace motley {

inline std::string tiny_fixture(const std::string& name = "tiny-qwen35") {
  return std::string(MOTLEY_SOURCE_DIR) + "/tests/fixtures/" + name;
}

inline std::unique_ptr<Engine> load_tiny(OwnedContext& context, EngineOptions options,
                                         const std::string& fixture = "tiny-qwen35") {
  options.model = tiny_fixture(fixture);
  Result<std::unique_ptr<Engine>> engine = Engine::load(context.get(), std::move(options));
  EXPECT_TRUE(engine.is_ok()) << engine.status().message();
  return engine.is_ok() ? std::move(engine).value() : nullptr;
}

// Token ids that differ by seed, inside every fixture's vocabulary.
inline std::vector<int32_t> test_tokens(int64_t count, uint64_t seed) {
  std::vector<int32_t> tokens;
  for (int64_t i = 0; i < count; ++i) {
    tokens.push_back(static_cast<int32_t>(uniform_at(seed, static_cast<uint64_t>(i)) * 128));
  }
  return tokens;
}

// Logits of every prompt row, then of the decoded rows; none after a failure.
inline std::vector<float> traced_logits(Engine& engine, const TraceRequest& request) {
  Result<SequenceTrace> trace = trace_sequence(engine, request);
  EXPECT_TRUE(trace.is_ok()) << trace.status().message();
  if (!trace.is_ok()) return {};
  std::vector<float> logits = std::move(trace->logits);
  logits.insert(logits.end(), trace->decode_logits.begin(), trace->decode_logits.end());
  return logits;
}

// Keeps tokens and every logits vector.
class RecordingListener final : public GenerationListener {
 public:
  bool on_token(const SampledToken& token) override {
    tokens.push_back(token.token);
    return std::ssize(tokens) != cancel_after;
  }
  void on_finish(FinishReason why, const Status& final_status,
                 const GenerationStats& final_stats) override {
    finished = true;
    reason = why;
    status = final_status;
    stats = final_stats;
  }
  void on_logits(std::span<const float> values, int64_t) override {
    logits.insert(logits.end(), values.begin(), values.end());
  }

  std::vector<int32_t> tokens;
  std::vector<float> logits;
  bool finished = false;
  FinishReason reason = FinishReason::kFailed;
  Status status;
  GenerationStats stats;
  std::ptrdiff_t cancel_after = -1;
};

// Bytes, so that -0 and 0 differ and NaN equals itself.
inline bool same_bits(const std::vector<float>& a, const std::vector<float>& b) {
  return a.size() == b.size() && std::equal(a.begin(), a.end(), b.begin(), [](float x, float y) {
           return std::bit_cast<uint32_t>(x) == std::bit_cast<uint32_t>(y);
         });
}

}  // namespace motley
