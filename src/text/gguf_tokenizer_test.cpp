#include "text/gguf_tokenizer.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>
#include <nlohmann/json.hpp>

#include "io/gguf_writer.h"
#include "support/test_files.h"
#include "text/text_model.h"

namespace motley {
namespace {

using testing::HasSubstr;

std::string pocket(const std::string& file) {
  return std::string(MOTLEY_SOURCE_DIR) + "/models/pocket/" + file;
}

// The keys that llama.cpp's converter writes for the tokenizer of the pocket model.
GgufMetadata pocket_keys() {
  std::ifstream in(pocket("tokenizer.json"));
  const nlohmann::json json = nlohmann::json::parse(in);
  std::vector<std::string> tokens(6144, "[PAD]");
  std::vector<int64_t> types(tokens.size(), 5);
  for (const auto& [token, id] : json["model"]["vocab"].items()) {
    tokens[id.get<size_t>()] = token;
    types[id.get<size_t>()] = 1;
  }
  for (const auto& entry : json["added_tokens"]) {
    tokens[entry["id"].get<size_t>()] = entry["content"];
    types[entry["id"].get<size_t>()] = entry["special"].get<bool>() ? 3 : 4;
  }
  std::vector<std::string> merges;
  for (const auto& merge : json["model"]["merges"]) {
    merges.push_back(merge[0].get<std::string>() + " " + merge[1].get<std::string>());
  }
  GgufMetadata keys;
  keys.add("tokenizer.ggml.model", std::string("gpt2"));
  keys.add("tokenizer.ggml.pre", std::string("qwen35"));
  keys.add("tokenizer.ggml.tokens", tokens);
  keys.add("tokenizer.ggml.token_type", types);
  keys.add("tokenizer.ggml.merges", merges);
  keys.add("tokenizer.ggml.eos_token_id", uint64_t{6137});
  keys.add("tokenizer.ggml.padding_token_id", uint64_t{6135});
  keys.add("tokenizer.chat_template", std::string("{{ messages[0].content }}"));
  MOTLEY_CHECK(keys.sort().is_ok(), "a key twice");
  return keys;
}

// The keys with one of them replaced, or left out.
GgufMetadata changed(const std::string& key, std::optional<GgufValue> value) {
  const GgufMetadata keys = pocket_keys();
  GgufMetadata result;
  for (const auto& [name, old] : keys.entries()) {
    if (name != key) result.add(name, old);
  }
  if (value) result.add(key, *value);
  MOTLEY_CHECK(result.sort().is_ok(), "a key twice");
  return result;
}

std::string error_of(const GgufMetadata& keys) {
  const Result<std::string> json = gguf_tokenizer_json(keys);
  return json.is_ok() ? Tokenizer::parse(*json).status().message() : json.status().message();
}

TEST(GgufTokenizer, TokensAreThoseOfTokenizerJson) {
  const TemporaryDirectory directory;
  FaultPoints faults;
  auto writer = GgufWriter::create(faults, directory / "model.gguf", pocket_keys(), {});
  ASSERT_TRUE(writer.is_ok());
  ASSERT_TRUE(writer->finish().is_ok());
  const auto model = load_text_model(directory / "model.gguf");
  ASSERT_TRUE(model.is_ok()) << model.status().message();
  const auto reference = Tokenizer::load(pocket("tokenizer.json"));
  ASSERT_TRUE(reference.is_ok());
  const std::vector<std::string> texts = {
      "", "Hello, world! It's 12345 o'clock.\n\n  Indented\ttext \r\n",
      "<|im_start|>user\nwhat is <think> this</think>?<|im_end|>\n",
      "caf\xC3\xA9 cafe\xCC\x81 \xE6\xBC\xA2\xE5\xAD\x97 \xF0\x9F\x99\x82 \xE0\xA4\xB9\xE0\xA4\xBF",
      std::string("\0\x01\xFF\xC0", 4)};
  for (const std::string& text : texts) {
    for (const bool special : {true, false}) {
      EXPECT_EQ(*model->tokenizer.encode(text, {.parse_special = special}),
                *reference->encode(text, {.parse_special = special}))
          << text;
    }
  }
  for (TokenId id = 0; id < 6144; ++id) {
    ASSERT_EQ(model->tokenizer.is_special(id), reference->is_special(id)) << id;
    ASSERT_EQ(model->tokenizer.token_bytes(id), reference->token_bytes(id)) << id;
  }
  EXPECT_EQ(model->config.eos_token, "<|im_end|>");
  EXPECT_EQ(model->config.pad_token, "<|endoftext|>");
  EXPECT_EQ(model->config.bos_token, std::nullopt);
  EXPECT_TRUE(model->chat_template.has_value());
}

TEST(GgufTokenizer, WhatIsNotKnownIsRefusedByName) {
  EXPECT_EQ(error_of(pocket_keys()), "");
  EXPECT_THAT(error_of(changed("tokenizer.ggml.pre", std::string("llama-bpe"))),
              HasSubstr("tokenizer.ggml.pre \"llama-bpe\" is not supported; known are qwen2, "));
  EXPECT_THAT(error_of(changed("tokenizer.ggml.pre", std::nullopt)),
              HasSubstr("key 'tokenizer.ggml.pre' is missing"));
  EXPECT_THAT(error_of(changed("tokenizer.ggml.model", std::string("llama"))),
              HasSubstr("tokenizer.ggml.model \"llama\" is not supported"));
  EXPECT_THAT(error_of(changed("tokenizer.ggml.merges", std::vector<std::string>{"ab"})),
              HasSubstr("entry 0 is not two tokens"));
  EXPECT_THAT(error_of(changed("tokenizer.ggml.merges", std::vector<std::string>{"ab cd"})),
              HasSubstr("which model.vocab lacks"));
  EXPECT_THAT(error_of(changed("tokenizer.ggml.token_type", std::vector<int64_t>{1})),
              HasSubstr("6144 and 1 entries"));
  EXPECT_THAT(error_of(changed("tokenizer.ggml.token_type", std::vector<int64_t>(6144, 6))),
              HasSubstr("token 0 has type 6"));
}

TEST(GgufTokenizer, SettingsAreChecked) {
  const auto error = [](const GgufMetadata& keys) {
    return gguf_tokenizer_config(keys, "x.gguf").status().message();
  };
  EXPECT_EQ(error(pocket_keys()), "");
  EXPECT_THAT(error(changed("tokenizer.ggml.eos_token_id", uint64_t{6144})),
              HasSubstr("'tokenizer.ggml.eos_token_id': 6144 is out of range"));
  EXPECT_THAT(error(changed("tokenizer.chat_template", uint64_t{1})),
              HasSubstr("key 'tokenizer.chat_template': must be one of"));
  EXPECT_THAT(error(changed("tokenizer.chat_template", std::string(2 << 20, 'x'))),
              HasSubstr("must be one of"));
  const auto named =
      gguf_tokenizer_config(changed("tokenizer.chat_template.tool_use", std::string("x")), "f");
  ASSERT_TRUE(named.is_ok());
  EXPECT_EQ(*named->chat_template("tool_use"), "x");
}

}  // namespace
}  // namespace motley
