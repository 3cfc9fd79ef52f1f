// Runs tests/cases/spec/qwen_config.case: one change to a valid config.json, and the error.
// What is not refused is tested below: fields with two places and their precedence.
#include <gmock/gmock.h>

#include <fstream>
#include <nlohmann/json.hpp>

#include "spec/family_registry.h"
#include "support/qwen_model.h"

namespace motley {
namespace {

using ::testing::HasSubstr;
using Json = nlohmann::ordered_json;

Result<ModelSpec> build(const Json& json, const TestModel& model) {
  const auto config = ConfigJson::parse(json.dump(), "config.json");
  if (!config.is_ok()) return config.status();
  return build_model_spec(*config, model);
}

Json valid_config(const TestModel& model) {
  return Json::parse(model.config());
}

struct ConfigCase {
  std::string line;
  std::string pointer;
  std::string value;  // empty: the member is removed
  std::string message;
};

ConfigCase parse_case(const std::string& line) {
  const size_t arrow = line.find(" -> ");
  const size_t space = line.find(' ');
  MOTLEY_CHECK(arrow != std::string::npos && space < arrow, "not a case: " + line);
  ConfigCase one{.line = line,
                 .pointer = line.substr(0, space),
                 .value = {},
                 .message = line.substr(arrow + 4)};
  const std::string change = line.substr(space + 1, arrow - space - 1);
  if (change == "remove") return one;
  MOTLEY_CHECK(change.starts_with("= "), "neither '= VALUE' nor 'remove': " + line);
  one.value = change.substr(2);
  return one;
}

std::vector<ConfigCase> read_cases() {
  std::ifstream file(std::string(MOTLEY_SOURCE_DIR) + "/tests/cases/spec/qwen_config.case");
  MOTLEY_CHECK(file.good(), "the case file is missing");
  std::vector<ConfigCase> cases;
  for (std::string line; std::getline(file, line);) {
    if (!line.empty() && line.front() != '#') cases.push_back(parse_case(line));
  }
  return cases;
}

TEST(QwenConfigCases, EveryChangeIsRefusedByKey) {
  const TestModel model;
  ASSERT_TRUE(build(valid_config(model), model).is_ok());
  const std::vector<ConfigCase> cases = read_cases();
  EXPECT_GT(cases.size(), 50u);
  for (const ConfigCase& one : cases) {
    SCOPED_TRACE(one.line);
    Json json = valid_config(model);
    const Json::json_pointer place(one.pointer);
    if (one.value.empty()) {
      ASSERT_TRUE(json.contains(place));
      json.at(place.parent_pointer()).erase(place.back());
    } else {
      json[place] = Json::parse(one.value);
    }
    const auto spec = build(json, model);
    ASSERT_FALSE(spec.is_ok());
    EXPECT_THAT(spec.status().message(), HasSubstr(one.message));
    EXPECT_THAT(spec.status().message(), ::testing::StartsWith("config.json: "));
    EXPECT_EQ(spec.status().message().find('\n'), std::string::npos);
  }
}

TEST(QwenConfigPlaces, EosTokensOfBothLevelsAreJoined) {
  const TestModel model;
  Json json = valid_config(model);
  json["text_config"]["eos_token_id"] = 9;
  json["eos_token_id"] = Json::array({4, 9, 2});
  const auto spec = build(json, model);
  ASSERT_TRUE(spec.is_ok()) << spec.status().message();
  EXPECT_EQ(spec->eos_tokens, (std::vector<int32_t>{9, 4, 2}));
  json["text_config"].erase("eos_token_id");
  json.erase("eos_token_id");
  EXPECT_TRUE(build(json, model)->eos_tokens.empty());
}

TEST(QwenConfigPlaces, ATiedHeadMayBeSaidAboveButNotContradicted) {
  const TestModel tied({.tied = true});
  Json json = valid_config(tied);
  json["text_config"].erase("tie_word_embeddings");
  json["tie_word_embeddings"] = true;
  EXPECT_EQ(build(json, tied)->head, build(json, tied)->embedding);
  json["text_config"]["tie_word_embeddings"] = false;
  EXPECT_THAT(build(json, tied).status().message(), HasSubstr("contradicts the same field"));
}

TEST(QwenConfigPlaces, RopeParametersWinOverFlatFields) {
  const TestModel model;
  const auto attention = [&](const Json& json) {
    const auto spec = build(json, model);
    MOTLEY_CHECK(spec.is_ok(), spec.status().message());
    return std::get<GatedAttentionSpec>(spec->layers[3].mixer);
  };
  Json json = valid_config(model);
  json["text_config"]["partial_rotary_factor"] = 0.5;
  EXPECT_EQ(attention(json).rotary_dim, 16);
  json["text_config"]["rope_parameters"] = {{"rope_type", "default"}, {"rope_theta", 5e6}};
  EXPECT_EQ(attention(json).rope_theta, 5e6);
  EXPECT_EQ(attention(json).rotary_dim, 16) << "what the inner object lacks is read outside";
  json["text_config"]["rope_parameters"]["partial_rotary_factor"] = 1;
  EXPECT_EQ(attention(json).rotary_dim, 32);
}

TEST(QwenConfigPlaces, LayerKindsFollowTheListOrTheInterval) {
  const TestModel model;
  Json json = valid_config(model);
  json["text_config"]["full_attention_interval"] = 2;
  const auto kinds = [&] {
    std::string text;
    const auto spec = build(json, model);
    if (!spec.is_ok()) return spec.status().message();
    for (const LayerSpec& layer : spec->layers) {
      text += std::holds_alternative<GatedAttentionSpec>(layer.mixer) ? 'A' : 'D';
    }
    return text;
  };
  EXPECT_EQ(kinds(), "DADA");
  json["text_config"]["layer_types"] =
      Json::array({"full_attention", "linear_attention", "linear_attention", "full_attention"});
  EXPECT_EQ(kinds(), "ADDA") << "the list wins over the interval";
}

}  // namespace
}  // namespace motley
