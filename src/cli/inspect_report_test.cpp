// The figures, the table and the JSON of `motley inspect`.
#include "cli/inspect_report.h"

#include <gmock/gmock.h>

#include "base/owned_context.h"
#include "cli/json_text.h"
#include "support/model_files.h"

namespace motley {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;
using Json = nlohmann::ordered_json;

ModelFacts facts_of(const TestModel& model, const std::string& config = "") {
  const TemporaryDirectory directory;
  write_model(model, directory);
  if (!config.empty()) directory.write("config.json", config);
  OwnedContext context({.threads = 1, .pin = false});
  auto facts = read_model_facts(context.get(), directory.path());
  MOTLEY_CHECK(facts.is_ok(), facts.status().message());
  return std::move(facts).value();
}

Json parsed(const std::string& text) {
  auto json = parse_json_text(text, "report");
  MOTLEY_CHECK(json.is_ok(), json.status().message());
  return std::move(json).value();
}

std::vector<std::string> keys(const Json& object) {
  std::vector<std::string> names;
  for (const auto& [name, value] : object.items()) names.push_back(name);
  return names;
}

TEST(InspectUnits, PowersOfAThousand) {
  EXPECT_EQ(bytes_text(0), "0 B");
  EXPECT_EQ(bytes_text(999), "999 B");
  EXPECT_EQ(bytes_text(1000), "1.0 KB");
  EXPECT_EQ(bytes_text(999'949), "999.9 KB");
  EXPECT_EQ(bytes_text(999'950), "1.0 MB") << "never 1000.0 KB";
  EXPECT_EQ(bytes_text(20'210'000'000), "20.2 GB");
  EXPECT_EQ(bytes_text(5'000'000'000'000'000), "5000.0 TB") << "the last unit has no end";
  EXPECT_EQ(count_text(512), "512");
  EXPECT_EQ(count_text(35'100'000'000), "35.1 B");
}

TEST(InspectFacts, CountsWhatAFileHolds) {
  const TestModel model;
  const ModelFacts facts = facts_of(model);
  EXPECT_EQ(facts.family, "qwen3_5_moe");
  EXPECT_EQ(facts.hidden, TestModel::kHidden);
  EXPECT_EQ(facts.vocab, TestModel::kVocab);
  EXPECT_EQ(facts.context, 128);
  EXPECT_EQ(facts.drafts, 1);
  EXPECT_EQ(facts.shards, 1u);
  int64_t file_bytes = 0;
  int64_t elements = 0;
  for (const auto& [name, tensor] : model.tensors) {
    file_bytes += std::ssize(tensor.bytes);
    elements += std::ssize(tensor.bytes) / dtype_bytes(tensor.dtype);
  }
  EXPECT_EQ(facts.placement.total().file_bytes, file_bytes);
  EXPECT_EQ(facts.parameters, elements);
  EXPECT_GT(facts.draft_parameters, 0);
  EXPECT_LT(facts.active, facts.parameters - facts.draft_parameters);
}

TEST(InspectFacts, LayersOfOneKindShareAGroup) {
  const ModelFacts facts = facts_of(TestModel());
  ASSERT_EQ(facts.groups.size(), 2u);
  EXPECT_EQ(facts.groups[0].mixer, "gated delta");
  EXPECT_EQ(facts.groups[0].layers, (std::vector<int>{0, 1, 2}));
  EXPECT_EQ(facts.groups[0].heads, "2 key heads of 8, 4 value heads of 8, convolution 4");
  EXPECT_EQ(facts.groups[1].mixer, "gated attention");
  EXPECT_EQ(facts.groups[1].heads, "2 query heads, 1 key-value heads of 32, rotary 8");
  EXPECT_EQ(facts.groups[1].feed_forward, "4 experts of 32, 2 a token, shared expert of 32");
}

// The state rows are those of a sequence without draft layers, once per cache format.
TEST(InspectFacts, StateIsGivenForBothCacheFormats) {
  const ModelFacts facts = facts_of(TestModel());
  ASSERT_EQ(facts.state.size(), 2u);
  EXPECT_EQ(facts.state[0].cache_format, "f32");
  EXPECT_EQ(facts.state[0].bytes_per_token, 2 * 32 * 4);
  EXPECT_EQ(facts.state[1].cache_format, "bf16");
  EXPECT_EQ(facts.state[1].bytes_per_token, 2 * 32 * 2);
  // Three layers: a window of 3 x 64 channels and four matrices of 8 x 8.
  EXPECT_EQ(facts.state[0].fixed_bytes, 3 * (3 * 64 + 4 * 8 * 8) * 4);
  EXPECT_EQ(facts.state[1].fixed_bytes, facts.state[0].fixed_bytes);
}

TEST(InspectFacts, AMissingTokenizerIsSaidNotFatal) {
  const ModelFacts facts = facts_of(TestModel());
  EXPECT_FALSE(facts.text.has_tokenizer);
  EXPECT_THAT(facts_table(facts), HasSubstr("none: no tokenizer.json"));
  const Json text = parsed(facts_json(facts)).at("text");
  EXPECT_TRUE(text.at("tokenizer").is_null());
  EXPECT_EQ(text.at("error"), "no tokenizer.json");
}

TEST(InspectFacts, AMissingModelIsAnError) {
  OwnedContext context({.threads = 1, .pin = false});
  const TemporaryDirectory empty;
  const auto facts = read_model_facts(context.get(), empty.path());
  ASSERT_FALSE(facts.is_ok());
  EXPECT_THAT(facts.status().message(), HasSubstr("config.json"));
}

// Scripts read these names: a change of them is a change of the interface.
TEST(InspectJson, HasItsMembersInOrder) {
  const Json json = parsed(facts_json(facts_of(TestModel())));
  EXPECT_EQ(keys(json),
            (std::vector<std::string>{"model", "family", "parameters", "hidden_size", "vocab_size",
                                      "context_length", "layers", "draft_layers", "state", "text",
                                      "bytes", "skipped"}));
  EXPECT_EQ(keys(json.at("parameters")), (std::vector<std::string>{"total", "active", "drafts"}));
  EXPECT_EQ(keys(json.at("bytes")), (std::vector<std::string>{"file", "memory", "files", "by_part",
                                                              "by_format", "by_kind"}));
  ASSERT_TRUE(json.at("layers").is_array());
  EXPECT_EQ(json.at("layers").at(0).at("layers"), Json::array({0, 1, 2}));
  ASSERT_TRUE(json.at("state").is_array());
  EXPECT_EQ(keys(json.at("state").at(0)),
            (std::vector<std::string>{"cache_format", "fixed_bytes", "bytes_per_token"}));
  EXPECT_TRUE(json.at("skipped").is_array());
}

TEST(InspectJson, SumsAgreeWithTheTotals) {
  const Json bytes = parsed(facts_json(facts_of(TestModel()))).at("bytes");
  for (const char* group : {"by_part", "by_format", "by_kind"}) {
    int64_t file = 0;
    int64_t memory = 0;
    for (const Json& row : bytes.at(group)) {
      file += row.at("file_bytes").get<int64_t>();
      memory += row.at("memory_bytes").get<int64_t>();
    }
    EXPECT_EQ(file, bytes.at("file").get<int64_t>()) << group;
    EXPECT_EQ(memory, bytes.at("memory").get<int64_t>()) << group;
  }
}

TEST(InspectTable, SkippedTensorsAreListedWithTheirReason) {
  const TestModel model;
  const ModelFacts facts = facts_of(model, model.config(R"(,"mtp_num_hidden_layers":0)"));
  EXPECT_EQ(facts.drafts, 0);
  EXPECT_THAT(facts_table(facts), HasSubstr("config.json says that there are no draft layers"));
  EXPECT_THAT(facts_table(facts), Not(HasSubstr("multi-token prediction")));
  const Json skipped = parsed(facts_json(facts)).at("skipped");
  ASSERT_EQ(skipped.size(), 1u);
  EXPECT_GT(skipped.at(0).at("tensors").get<int>(), 5);
}

TEST(InspectTable, ControlCharactersOfATokenAreEscaped) {
  ModelFacts facts = facts_of(TestModel());
  facts.text = {.has_tokenizer = true, .vocab = 9, .stop_tokens = {{7, "\x1b[2J"}}};
  EXPECT_THAT(facts_table(facts), HasSubstr("7 (\\x1b[2J)"));
  EXPECT_THAT(facts_table(facts), Not(HasSubstr("\x1b")));
  EXPECT_THAT(facts_table(facts), HasSubstr("chat template    none"));
}

}  // namespace
}  // namespace motley
