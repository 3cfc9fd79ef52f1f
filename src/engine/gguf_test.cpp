// Models in GGUF files: the whole engine, resident and streamed.
#include <gtest/gtest.h>

#include "engine/engine_test_util.h"
#include "support/gguf_model.h"
#include "support/test_files.h"

namespace motley {
namespace {

std::unique_ptr<Engine> load_file(OwnedContext& context, const std::string& path,
                                  EngineOptions options) {
  options.model = path;
  Result<std::unique_ptr<Engine>> engine = Engine::load(context.get(), std::move(options));
  EXPECT_TRUE(engine.is_ok()) << engine.status().message();
  return engine.is_ok() ? std::move(engine).value() : nullptr;
}

TraceRequest short_request() {
  TraceRequest request;
  request.prompt = test_tokens(40, 3);
  request.continuation = test_tokens(6, 4);
  request.prefill_chunk = 16;
  return request;
}

class GgufEngine : public testing::Test {
 protected:
  void write(TestGgufOptions options) {
    const auto model = load_model(context_.get(), tiny_fixture());
    ASSERT_TRUE(model.is_ok()) << model.status().message();
    TestGguf(*model, options).write(context_.faults(), path_);
  }

  OwnedContext context_{ThreadPoolOptions{.threads = 2, .pin = false}};
  const TemporaryDirectory directory_;
  const std::string path_ = directory_ / "tiny.gguf";
};

// float32 weights differ from the checkpoint's in the rounding of one logarithm alone.
TEST_F(GgufEngine, LogitsAreThoseOfTheCheckpoint) {
  write({.plain = DType::kBf16});
  const auto expected = load_tiny(context_, {.profile = NumericProfile::kExact});
  const auto engine = load_file(context_, path_, {.profile = NumericProfile::kExact});
  ASSERT_TRUE(expected != nullptr && engine != nullptr);
  const std::vector<float> wanted = traced_logits(*expected, short_request());
  const std::vector<float> found = traced_logits(*engine, short_request());
  ASSERT_EQ(found.size(), wanted.size());
  float largest = 0;
  float worst = 0;
  for (size_t i = 0; i < wanted.size(); ++i) {
    largest = std::max(largest, std::fabs(wanted[i]));
    worst = std::max(worst, std::fabs(wanted[i] - found[i]));
  }
  EXPECT_LT(worst, 2e-5f * largest);
}

TEST_F(GgufEngine, StreamedEqualsResident) {
  for (const GgufType type : {GgufType::kQ8_0, GgufType::kQ4_0}) {
    write({.type = type, .fused_experts = type == GgufType::kQ4_0});
    for (const auto profile : {NumericProfile::kExact, NumericProfile::kFast}) {
      const auto resident = load_file(context_, path_, {.profile = profile});
      const auto streamed =
          load_file(context_, path_, {.profile = profile, .expert_cache = {.share = 0.5}});
      ASSERT_TRUE(resident != nullptr && streamed != nullptr);
      ASSERT_NE(streamed->streamed_experts(), nullptr);
      EXPECT_TRUE(same_bits(traced_logits(*streamed, short_request()),
                            traced_logits(*resident, short_request())));
      EXPECT_GT(streamed->streamed_experts()->stats().read_bytes, 0);
    }
  }
}

TEST_F(GgufEngine, ChunksAndThreadsDoNotChangeBits) {
  write({.type = GgufType::kQ8_0});
  OwnedContext one_thread({.threads = 1, .pin = false});
  const auto engine = load_file(context_, path_, {.profile = NumericProfile::kFast});
  const auto single = load_file(one_thread, path_, {.profile = NumericProfile::kFast});
  ASSERT_TRUE(engine != nullptr && single != nullptr);
  TraceRequest other = short_request();
  other.prefill_chunk = 7;
  const std::vector<float> expected = traced_logits(*engine, short_request());
  EXPECT_TRUE(same_bits(traced_logits(*engine, other), expected));
  EXPECT_TRUE(same_bits(traced_logits(*single, short_request()), expected));
}

// A scale that is no number in an expert that is read when it is wanted.
TEST_F(GgufEngine, AStreamedExpertWithABrokenScaleIsRefused) {
  const auto model = load_model(context_.get(), tiny_fixture());
  ASSERT_TRUE(model.is_ok());
  TestGguf gguf(*model, {.type = GgufType::kQ8_0});
  for (auto& [tensor, bytes] : gguf.tensors) {
    if (tensor.name.find("ffn_up_exps") == std::string::npos) continue;
    for (size_t at = 1; at < bytes.size(); at += 34) bytes[at] = std::byte{0x7E};
  }
  gguf.write(context_.faults(), path_);
  const auto engine = load_file(context_, path_, {.expert_cache = {.share = 0.5}});
  ASSERT_NE(engine, nullptr);
  const Result<SequenceTrace> trace = trace_sequence(*engine, short_request());
  ASSERT_FALSE(trace.is_ok());
  EXPECT_NE(trace.status().message().find("NaN"), std::string::npos) << trace.status().message();
}

}  // namespace
}  // namespace motley
