#include "cli/sampling_options.h"

#include <gtest/gtest.h>

namespace motley {
namespace {

const OptionSpec& option(std::string_view name) {
  static const std::vector<OptionSpec> table = sampling_option_table();
  for (const OptionSpec& candidate : table) {
    if (candidate.name == name) return candidate;
  }
  ADD_FAILURE() << "no option " << name;
  return table.front();
}

OptionValues given(std::initializer_list<std::pair<std::string_view, std::string>> list) {
  OptionValues values;
  for (const auto& [name, text] : list) {
    EXPECT_TRUE(values.set(option(name), {text}, "--" + std::string(name)).is_ok()) << name;
  }
  return values;
}

TEST(SamplingOptions, GreedyUnlessTheModelSamples) {
  GenerationConfig config;
  config.temperature = 0.6;
  config.top_p = 0.9;
  EXPECT_EQ(sampling_defaults(config).temperature, 0);
  EXPECT_EQ(sampling_defaults(config).top_p, 1);
  config.do_sample = true;
  EXPECT_EQ(sampling_defaults(config).temperature, 0.6);
  EXPECT_EQ(sampling_defaults(config).top_p, 0.9);
  EXPECT_EQ(sampling_defaults(config).top_k, 0);
  EXPECT_EQ(sampling_defaults(GenerationConfig{.do_sample = true}).temperature, 1);
}

TEST(SamplingOptions, GivenOptionsReplaceDefaults) {
  const auto params = sampling_params(given({{"temp", "0.5"},
                                             {"top-k", "7"},
                                             {"top-p", "0.8"},
                                             {"min-p", "0.1"},
                                             {"repetition-penalty", "1.2"},
                                             {"presence-penalty", "-1"},
                                             {"frequency-penalty", "0.25"},
                                             {"seed", "42"},
                                             {"logit-bias", "3=-2.5"}}),
                                      {});
  ASSERT_TRUE(params.is_ok()) << params.status().message();
  EXPECT_EQ(params->temperature, 0.5);
  EXPECT_EQ(params->top_k, 7);
  EXPECT_EQ(params->top_p, 0.8);
  EXPECT_EQ(params->min_p, 0.1);
  EXPECT_EQ(params->repetition_penalty, 1.2);
  EXPECT_EQ(params->presence_penalty, -1);
  EXPECT_EQ(params->frequency_penalty, 0.25);
  EXPECT_EQ(params->seed, 42U);
  EXPECT_EQ(params->logit_bias, (std::map<int32_t, double>{{3, -2.5}}));
}

TEST(SamplingOptions, ASeedIsDrawnOnlyForSampledRuns) {
  EXPECT_EQ(sampling_params({}, {})->seed, 0U);
  SamplingParams sampled;
  sampled.temperature = 1;
  EXPECT_NE(sampling_params({}, sampled)->seed, sampling_params({}, sampled)->seed);
}

TEST(SamplingOptions, ABiasNeedsIdAndValue) {
  for (const char* text : {"3", "=1", "x=1", "3=", "-1=2", "99999999999=1", "3=inf"}) {
    const auto params = sampling_params(given({{"logit-bias", text}}), {});
    EXPECT_FALSE(params.is_ok()) << text;
    EXPECT_FALSE(check_sampling_options(given({{"logit-bias", text}})).is_ok()) << text;
    EXPECT_NE(params.status().message().find("--logit-bias needs ID=BIAS"), std::string::npos);
  }
}

}  // namespace
}  // namespace motley
