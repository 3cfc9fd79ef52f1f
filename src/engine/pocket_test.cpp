// The quality of the quantised pocket model: exact answers, loss and divergence from bfloat16.
#include <gtest/gtest.h>

#include <cmath>
#include <filesystem>
#include <fstream>
#include <iterator>

#include "base/owned_context.h"
#include "engine/engine_test_util.h"
#include "engine/verify/expected_tensors.h"
#include "engine/verify/label_check.h"
#include "engine/verify/sequence_trace.h"
#include "spec/config_json.h"
#include "text/tokenizer.h"

namespace motley {
namespace {

const std::string kRoot = MOTLEY_SOURCE_DIR;
const std::string kPocket = kRoot + "/models/pocket";
const std::string kLatent = kRoot + "/../shared/models/pocket-glm53";
const std::string kOriginal = kRoot + "/../shared/models/pocket-qwen35";

std::string read_file(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

std::vector<std::string> read_chats() {
  const std::string list = read_file(kRoot + "/tests/fixtures/pocket/chats.json");
  const ConfigJson json = ConfigJson::parse("{\"chats\": " + list + "}", "chats.json").value();
  return json.root().texts("chats").value();
}

std::unique_ptr<Engine> load(OwnedContext& context, const std::string& path,
                             NumericProfile profile) {
  EngineOptions options;
  options.model = path;
  options.profile = profile;
  Result<std::unique_ptr<Engine>> engine = Engine::load(context.get(), options);
  EXPECT_TRUE(engine.is_ok()) << engine.status().message();
  return engine.is_ok() ? std::move(engine).value() : nullptr;
}

class PocketTest : public testing::TestWithParam<NumericProfile> {
 protected:
  void SetUp() override {
    if (!std::filesystem::exists(kPocket + "/config.json")) GTEST_SKIP() << "no models/pocket";
  }
  OwnedContext context_{{.threads = 2, .pin = false}};
};

void expect_answers(OwnedContext& context, const std::string& path, NumericProfile profile,
                    const std::vector<size_t>& indices) {
  const std::unique_ptr<Engine> engine = load(context, path, profile);
  ASSERT_NE(engine, nullptr);
  const Tokenizer tokenizer = Tokenizer::load(path + "/tokenizer.json").value();
  const std::vector<std::string> chats = read_chats();
  const std::string header = "<|im_start|>assistant\n";
  Sequence sequence = engine->create_sequence().value();
  for (const size_t index : indices) {
    const std::string& chat = chats[index];
    const size_t begin = chat.find(header) + header.size();
    const std::string answer = chat.substr(begin, chat.find("<|im_end|>", begin) - begin);
    sequence.sync(tokenizer.encode(chat.substr(0, begin)).value());
    Scheduler scheduler(*engine, {});
    RecordingListener listener;
    GenerationRequest request{.max_new_tokens = 120, .stop_tokens = engine->spec().eos_tokens};
    ASSERT_TRUE(scheduler.submit(sequence, request, listener).is_ok());
    scheduler.run_until_idle();
    EXPECT_EQ(tokenizer.decode(listener.tokens, true), answer) << "chat " << index;
  }
}

TEST_P(PocketTest, ElevenChatsAreAnsweredExactly) {
  expect_answers(context_, kPocket, GetParam(), {1, 4, 5, 9, 10, 11, 12, 13, 15, 16, 17});
}

TEST_P(PocketTest, TheOneWithLatentAttentionAnswersNine) {
  if (!std::filesystem::exists(kLatent + "/config.json")) GTEST_SKIP() << "no " << kLatent;
  expect_answers(context_, kLatent, GetParam(), {4, 5, 9, 10, 11, 12, 15, 16, 17});
}

double mean_loss(const SequenceTrace& trace, const std::vector<int32_t>& ids) {
  double sum = 0;
  for (size_t i = 0; i + 1 < ids.size(); ++i) {
    sum += token_loss(trace.row(trace.logits, static_cast<int64_t>(i)), ids[i + 1]);
  }
  return sum / static_cast<double>(ids.size() - 1);
}

// Natural logarithm of the sum of exponentials.
double log_sum(std::span<const float> logits) {
  return token_loss(logits, 0) + double{logits[0]};
}

// KL(p || q) of the softmax of two rows of logits.
double divergence(std::span<const float> p, std::span<const float> q) {
  const double p_total = log_sum(p);
  const double q_total = log_sum(q);
  double sum = 0;
  for (size_t i = 0; i < p.size(); ++i) {
    const double log_p = p[i] - p_total;
    sum += std::exp(log_p) * (log_p - (q[i] - q_total));
  }
  return sum;
}

TEST_P(PocketTest, LossAndDivergenceStayNearBfloat16) {
  const ExpectedTensors expected =
      ExpectedTensors::open(context_.get(), kRoot + "/tests/fixtures/pocket/expected.safetensors")
          .value();
  const std::vector<int32_t>& ids = expected.ints("text.ids")->values;
  const std::vector<float>& losses = expected.floats("text.nll")->values;
  double reference = 0;
  for (const float loss : losses) reference += loss;
  reference /= static_cast<double>(losses.size());

  const std::unique_ptr<Engine> engine = load(context_, kPocket, GetParam());
  const SequenceTrace quantised = trace_sequence(*engine, {.prompt = ids}).value();
  const double loss = mean_loss(quantised, ids);
  std::printf("loss %.5f, bfloat16 reference %.5f\n", loss, reference);
  EXPECT_NEAR(loss, reference, 0.02);

  if (!std::filesystem::exists(kOriginal + "/config.json")) {
    GTEST_SKIP() << "divergence not measured: the bfloat16 original is not at hand";
  }
  const std::unique_ptr<Engine> original = load(context_, kOriginal, NumericProfile::kExact);
  const SequenceTrace wide = trace_sequence(*original, {.prompt = ids}).value();
  double kl = 0;
  const auto rows = static_cast<int64_t>(ids.size());
  for (int64_t row = 0; row < rows; ++row) {
    kl += divergence(wide.row(wide.logits, row), quantised.row(quantised.logits, row));
  }
  std::printf("mean KL to bfloat16 %.5f\n", kl / static_cast<double>(rows));
  EXPECT_LT(kl / static_cast<double>(rows), 0.02);
}

INSTANTIATE_TEST_SUITE_P(Profiles, PocketTest,
                         testing::Values(NumericProfile::kExact, NumericProfile::kFast),
                         [](const testing::TestParamInfo<NumericProfile>& tested) {
                           return std::string(numeric_profile_name(tested.param));
                         });

}  // namespace
}  // namespace motley
