#include "spec/generation_config.h"

#include <gmock/gmock.h>

namespace motley {
namespace {

Result<GenerationConfig> read(std::string_view text) {
  const auto config = ConfigJson::parse(text, "generation_config.json");
  EXPECT_TRUE(config.is_ok());
  return read_generation_config(*config);
}

TEST(GenerationConfig, ReadsWhatIsThere) {
  const auto config =
      read(R"({"do_sample":true,"temperature":0.6,"top_k":20,"top_p":0.95,"min_p":0,)"
           R"("repetition_penalty":1.05,"eos_token_id":[7,9],"transformers_version":"5"})");
  ASSERT_TRUE(config.is_ok()) << config.status().message();
  EXPECT_TRUE(config->do_sample);
  EXPECT_EQ(config->temperature, 0.6);
  EXPECT_EQ(config->top_k, 20);
  EXPECT_EQ(config->top_p, 0.95);
  EXPECT_EQ(config->min_p, 0.0);
  EXPECT_EQ(config->repetition_penalty, 1.05);
  EXPECT_EQ(config->eos_tokens, (std::vector<int32_t>{7, 9}));
  EXPECT_EQ(read(R"({"eos_token_id":4})")->eos_tokens, std::vector<int32_t>{4});
  const auto empty = read("{}");
  EXPECT_FALSE(empty->do_sample);
  EXPECT_FALSE(empty->temperature.has_value());
}

TEST(GenerationConfig, RefusesValuesOutOfRange) {
  for (const char* text :
       {R"({"temperature":-1})", R"({"top_p":1.5})", R"({"top_k":-2})", R"({"top_k":0.5})",
        R"({"min_p":"0"})", R"({"repetition_penalty":0})", R"({"eos_token_id":-1})",
        R"({"eos_token_id":[1,"2"]})", R"({"eos_token_id":2147483648})", R"({"do_sample":1})"}) {
    const auto config = read(text);
    ASSERT_FALSE(config.is_ok()) << text;
    EXPECT_THAT(config.status().message(), ::testing::StartsWith("generation_config.json: "));
  }
}

TEST(GenerationConfig, UnionKeepsOrder) {
  std::vector<int32_t> all{3, 1};
  add_eos_tokens({1, 2, 3}, &all);
  EXPECT_EQ(all, (std::vector<int32_t>{3, 1, 2}));
}

}  // namespace
}  // namespace motley
