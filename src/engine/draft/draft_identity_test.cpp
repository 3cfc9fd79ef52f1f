// Drafts lose nothing: tokens, probabilities and logits are those of a run without them, for every
// number of drafts, in every mode. In its long form (scripts/verify-drafts) 2,000 tokens each.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <filesystem>

#include "base/owned_context.h"
#include "engine/draft/draft_test_util.h"
#include "support/random_cases.h"

namespace motley {
namespace {

constexpr int kMost = 5;
constexpr int64_t kPrompt = 33;

int64_t token_count() {
  return from_environment("MOTLEY_DRAFT_TOKENS", random_cases<int64_t>(160));
}

std::unique_ptr<Engine> load(OwnedContext& context, const std::string& model,
                             EngineOptions options) {
  options.model = model;
  Result<std::unique_ptr<Engine>> engine = Engine::load(context.get(), std::move(options));
  EXPECT_TRUE(engine.is_ok()) << engine.status().message();
  return engine.is_ok() ? std::move(engine).value() : nullptr;
}

// The checkpoints that this is shown on: those in the repository, and more where they are.
std::vector<std::string> models() {
  std::vector<std::string> found = {tiny_fixture(), tiny_fixture("tiny-glm52"),
                                    tiny_fixture("tiny-glm53")};
  const char* more = std::getenv("MOTLEY_DRAFT_MODELS");  // separated by colons
  std::string list = std::string(MOTLEY_SOURCE_DIR) + "/models/pocket:" + (more ? more : "");
  for (size_t begin = 0; begin < list.size();) {
    const size_t end = std::min(list.find(':', begin), list.size());
    const std::string model = list.substr(begin, end - begin);
    if (std::filesystem::exists(model + "/config.json")) found.push_back(model);
    begin = end + 1;
  }
  return found;
}

class DraftIdentity : public testing::TestWithParam<std::string> {
 protected:
  DraftTestListener plain(EngineOptions options, DraftRun run) {
    run.options = {};
    const auto engine = load(context_, GetParam(), options);
    return generate(*engine, test_tokens(kPrompt, 8), run);
  }

  OwnedContext context_{{.threads = 1, .pin = false}};
};

TEST_P(DraftIdentity, GreedyIsTheSameForEveryNumber) {
  DraftRun run{.request = {.max_new_tokens = token_count(), .top_logprobs = 2}};
  for (const NumericProfile profile : {NumericProfile::kFast, NumericProfile::kExact}) {
    const DraftTestListener expected = plain({.profile = profile}, run);
    ASSERT_EQ(std::ssize(expected.tokens), token_count());
    const auto engine = load(context_, GetParam(), with_drafts({.profile = profile}, kMost));
    for (const int drafts : {0, 1, 3, 5}) {
      run.options.drafts = drafts;
      const DraftTestListener actual = generate(*engine, test_tokens(kPrompt, 8), run);
      EXPECT_TRUE(same_output(actual, expected)) << drafts << " drafts";
      EXPECT_EQ(actual.stats.drafts.steps() > 0, drafts > 0);
    }
  }
}

// Half of the drafts at random: every number of accepted ones occurs, and is rolled back to. On
// random checkpoints, whose draft layers are never right, the other half is the true continuation.
TEST_P(DraftIdentity, RandomDraftsChangeNothing) {
  DraftRun run{.request = {.max_new_tokens = token_count()}};
  const DraftTestListener expected = plain({}, run);
  const auto engine = load(context_, GetParam(), with_drafts({}, kMost));
  const int64_t vocab = engine->spec().vocab_size;
  // Too few tokens, as in slow builds, need not show every number.
  const int least = token_count() >= 2000 ? 20 : token_count() >= 160 ? 1 : 0;
  for (const bool knows : {false, true}) {
    run.options.replace_guess =
        knows ? oracle(expected.tokens, kPrompt, 0.4, vocab) : half_random(vocab);
    for (const int drafts : {1, 3, 5}) {
      run.options.drafts = drafts;
      const DraftTestListener actual = generate(*engine, test_tokens(kPrompt, 8), run);
      EXPECT_TRUE(same_output(actual, expected)) << drafts << " drafts";
      const DraftStats& stats = actual.stats.drafts;
      fmt::print("{}, {} drafts, some at random, the others {}; steps by accepted: {}\n",
                 GetParam(), drafts, knows ? "right" : "the layer's",
                 fmt::join(stats.by_accepted, " "));
      EXPECT_GT(stats.by_accepted[0], 0);
      for (int accepted = 0; knows && accepted <= drafts; ++accepted) {
        EXPECT_GE(stats.by_accepted[static_cast<size_t>(accepted)], least) << accepted;
      }
    }
  }
}

TEST_P(DraftIdentity, StreamedIsResident) {
  DraftRun run{.request = {.max_new_tokens = std::max<int64_t>(token_count() / 4, 20)}};
  const DraftTestListener expected = plain({}, run);
  run.options.replace_guess = oracle(expected.tokens, kPrompt, 0.3, 128);
  for (const int drafts : {0, 1, 3, 5}) {
    EngineOptions options = with_drafts({}, drafts);
    options.expert_cache = {.share = 0.5};
    const auto engine = load(context_, GetParam(), options);
    ASSERT_NE(engine->streamed_experts(), nullptr);
    run.options.drafts = drafts;
    run.options.prefill_chunk = 16;  // so that the prompt is swept
    EXPECT_TRUE(same_output(generate(*engine, test_tokens(kPrompt, 8), run), expected)) << drafts;
  }
}

TEST_P(DraftIdentity, SampledIsTheSameForEveryNumber) {
  DraftRun run{.request = {.sampling = {.temperature = 0.8, .seed = 5},
                           .max_new_tokens = std::max<int64_t>(token_count() / 2, 20),
                           .top_logprobs = 1}};
  std::vector<SamplingParams> all(3, run.request.sampling);
  all[1].top_k = 20;
  all[1].top_p = 0.9;
  all[1].min_p = 0.02;
  all[2].repetition_penalty = 1.2;
  all[2].presence_penalty = 0.4;
  all[2].frequency_penalty = 0.3;
  all[2].logit_bias = {{3, 2.0}, {7, -100.0}};
  const auto engine = load(context_, GetParam(), with_drafts({}, kMost));
  for (const SamplingParams& sampling : all) {
    run.request.sampling = sampling;
    run.options.drafts = 0;
    const DraftTestListener expected = generate(*engine, test_tokens(kPrompt, 8), run);
    for (const int drafts : {1, 3, 5}) {
      run.options.drafts = drafts;
      EXPECT_TRUE(same_output(generate(*engine, test_tokens(kPrompt, 8), run), expected)) << drafts;
      DraftRun knowing = run;
      knowing.options.replace_guess = oracle(expected.tokens, kPrompt, 0.2, 128);
      const DraftTestListener actual = generate(*engine, test_tokens(kPrompt, 8), knowing);
      EXPECT_TRUE(same_output(actual, expected)) << drafts;
      EXPECT_GT(actual.stats.drafts.rate(0), 0.5);
    }
  }
}

std::string model_name(const testing::TestParamInfo<std::string>& info) {
  std::string name = std::filesystem::path(info.param).filename().string();
  std::replace_if(
      name.begin(), name.end(), [](char c) { return !std::isalnum(static_cast<unsigned char>(c)); },
      '_');
  return name;
}

INSTANTIATE_TEST_SUITE_P(Models, DraftIdentity, testing::ValuesIn(models()), model_name);

}  // namespace
}  // namespace motley
