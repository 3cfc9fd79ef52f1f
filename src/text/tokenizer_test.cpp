#include "text/tokenizer.h"

#include <gtest/gtest.h>
#include <rapidcheck.h>
#include <rapidcheck/gtest.h>

#include <functional>
#include <string>
#include <thread>
#include <vector>

#include "text/test_tokenizer.h"
#include "text/utf8.h"

namespace motley {
namespace {

using Json = nlohmann::json;
using Ids = std::vector<TokenId>;

Tokenizer load(const Json& json) {
  Result<Tokenizer> tokenizer = Tokenizer::parse(json.dump());
  EXPECT_TRUE(tokenizer.is_ok()) << tokenizer.status().message();
  return std::move(tokenizer).value();
}

Ids encode(const Tokenizer& tokenizer, const std::string& text, EncodeOptions options = {}) {
  Result<Ids> ids = tokenizer.encode(text, options);
  EXPECT_TRUE(ids.is_ok());
  return std::move(ids).value();
}

Json with_specials() {
  Json json = test_tokenizer_json({{"a", "b"}, {"ab", "c"}});
  json["added_tokens"] = {test_added_token(300, "<|end|>"),
                          test_added_token(301, "<think>", false)};
  return json;
}

TEST(Tokenizer, EncodesAndDecodes) {
  const Tokenizer tokenizer = load(with_specials());
  EXPECT_EQ(encode(tokenizer, "abcab"), (Ids{257, 256}));
  EXPECT_EQ(encode(tokenizer, "ab<|end|>c"), (Ids{256, 300, 'c'}));
  EXPECT_TRUE(encode(tokenizer, "").empty());
  EXPECT_EQ(tokenizer.decode(Ids{257, 300, 'x'}, false), "abc<|end|>x");
  EXPECT_EQ(tokenizer.decode(Ids{257, 300, 301}, true), "abc<think>");
  EXPECT_EQ(tokenizer.decode(Ids{0xE2, 0x82, 0xAC}, false), "€");
  EXPECT_EQ(tokenizer.decode(Ids{0xE2, 0x82}, false), "\uFFFD");
}

TEST(Tokenizer, AnswersAboutTokens) {
  const Tokenizer tokenizer = load(with_specials());
  EXPECT_EQ(tokenizer.vocab_size(), 302u);
  EXPECT_EQ(tokenizer.token_id("<|end|>"), 300);
  EXPECT_EQ(tokenizer.token_id("abc"), 257);
  EXPECT_EQ(tokenizer.token_id("Ġ"), 32);
  EXPECT_FALSE(tokenizer.token_id("nope"));
  EXPECT_EQ(tokenizer.token_bytes(32), " ");
  EXPECT_TRUE(tokenizer.is_special(300));
  EXPECT_FALSE(tokenizer.is_special(301));
  EXPECT_TRUE(tokenizer.is_added(301));
  EXPECT_FALSE(tokenizer.is_added(257));
  for (const TokenId id : {-1, 258, 299, 302, INT32_MAX, INT32_MIN}) {
    EXPECT_FALSE(tokenizer.has_token(id)) << id;
    EXPECT_EQ(tokenizer.token_bytes(id), "");
    EXPECT_EQ(tokenizer.decode(Ids{id}, false), "");
  }
}

TEST(Tokenizer, SpecialTokensCanStayText) {
  const Tokenizer tokenizer = load(with_specials());
  EXPECT_EQ(encode(tokenizer, "<|end|>", {.parse_special = false}).size(), 7u);
  EXPECT_EQ(encode(tokenizer, "<think>", {.parse_special = false}), (Ids{301}));
}

TEST(Tokenizer, InvalidUtf8BecomesTheReplacementCharacter) {
  const Tokenizer tokenizer = load(with_specials());
  EXPECT_EQ(encode(tokenizer, "a\xFF"), (Ids{'a', 0xEF, 0xBF, 0xBD}));
  EXPECT_EQ(encode(tokenizer, "\xF0\x9F\x98z"), (Ids{0xEF, 0xBF, 0xBD, 'z'}));
}

TEST(Tokenizer, NormalizesBetweenTheTwoKindsOfAddedTokens) {
  Json json = test_tokenizer_json();
  json["normalizer"] = {{"type", "Sequence"}, {"normalizers", Json::array({{{"type", "NFC"}}})}};
  Json raw = test_added_token(300, "e\u0301");
  Json normalized = test_added_token(301, "a\u0301");
  normalized["normalized"] = true;
  json["added_tokens"] = {raw, normalized};
  const Tokenizer tokenizer = load(json);
  EXPECT_EQ(encode(tokenizer, "e\u0301"), (Ids{300}));
  EXPECT_EQ(encode(tokenizer, "\u00e9"), (Ids{0xC3, 0xA9}));
  EXPECT_EQ(encode(tokenizer, "a\u0301"), (Ids{301}));
  EXPECT_EQ(encode(tokenizer, "\u00e1"), (Ids{301}));
  EXPECT_EQ(encode(tokenizer, "o\u0301"), (Ids{0xC3, 0xB3}));
  EXPECT_EQ(tokenizer.decode(Ids{301}, false), "a\u0301");
}

TEST(Tokenizer, TemplateProcessingIsOnRequest) {
  Json json = with_specials();
  const Json bos = {{"SpecialToken", {{"id", "<|end|>"}, {"type_id", 0}}}};
  const Json text = {{"Sequence", {{"id", "A"}, {"type_id", 0}}}};
  json["post_processor"] = {
      {"type", "Sequence"},
      {"processors",
       {{{"type", "ByteLevel"}},
        {{"type", "TemplateProcessing"},
         {"single", {bos, text, bos, bos}},
         {"pair", Json::array()},
         {"special_tokens",
          {{"<|end|>", {{"id", "<|end|>"}, {"ids", {300}}, {"tokens", {"<|end|>"}}}}}}}}}};
  const Tokenizer tokenizer = load(json);
  EXPECT_EQ(encode(tokenizer, "ab"), (Ids{256}));
  EXPECT_EQ(encode(tokenizer, "ab", {.add_special = true}), (Ids{300, 256, 300, 300}));
}

TEST(Tokenizer, MergesMayBeStrings) {
  Json json = test_tokenizer_json({{"a", "b"}});
  json["model"]["merges"] = {"a b"};
  EXPECT_EQ(encode(load(json), "ab"), (Ids{256}));
}

TEST(Tokenizer, AnAddedTokenOfTheVocabularyKeepsBothMeanings) {
  // The spelling "Ġ" is the byte 20 for merges and itself as an added token.
  Json json = test_tokenizer_json();
  json["added_tokens"] = Json::array({test_added_token(32, "Ġ")});
  const Tokenizer tokenizer = load(json);
  EXPECT_EQ(encode(tokenizer, " "), (Ids{32}));
  EXPECT_EQ(encode(tokenizer, "Ġ"), (Ids{32}));
  EXPECT_EQ(tokenizer.decode(Ids{32}, false), "Ġ");
}

struct Broken {
  std::string part;  // of the error
  std::function<void(Json&)> change;
};

TEST(Tokenizer, RefusesWhatItCannotDoByName) {
  const std::vector<Broken> cases = {
      {"tokenizer.colour", [](Json& j) { j["colour"] = 1; }},
      {"version", [](Json& j) { j["version"] = "2.0"; }},
      {"truncation", [](Json& j) { j["truncation"] = {{"max_length", 5}}; }},
      {"padding", [](Json& j) { j["padding"] = {{"pad_id", 0}}; }},
      {"Unigram", [](Json& j) { j["model"]["type"] = "Unigram"; }},
      {"model.dropout", [](Json& j) { j["model"]["dropout"] = 0.1; }},
      {"model.byte_fallback", [](Json& j) { j["model"]["byte_fallback"] = true; }},
      {"model.end_of_word_suffix", [](Json& j) { j["model"]["end_of_word_suffix"] = "</w>"; }},
      {"model.continuing_subword_prefix",
       [](Json& j) { j["model"]["continuing_subword_prefix"] = "##"; }},
      {"model.ignore_merges", [](Json& j) { j["model"]["ignore_merges"] = "yes"; }},
      {"model.shape", [](Json& j) { j["model"]["shape"] = 1; }},
      {"model.vocab is missing", [](Json& j) { j["model"].erase("vocab"); }},
      {"model.merges is missing", [](Json& j) { j["model"]["merges"] = nullptr; }},
      {"model.vocab is missing", [](Json& j) { j["model"]["vocab"] = {1, 2}; }},
      {"whole number", [](Json& j) { j["model"]["vocab"]["x1"] = -1; }},
      {"whole number", [](Json& j) { j["model"]["vocab"]["x1"] = 1.5; }},
      {"whole number", [](Json& j) { j["model"]["vocab"]["x1"] = "7"; }},
      {"whole number", [](Json& j) { j["model"]["vocab"]["x1"] = {{"a", 1}}; }},
      {"limit of 4194304", [](Json& j) { j["model"]["vocab"]["x1"] = 1 << 22; }},
      {"limit of 4194304", [](Json& j) { j["model"]["vocab"]["x1"] = 1ull << 63; }},
      {"belongs to two tokens", [](Json& j) { j["model"]["vocab"]["x1"] = 7; }},
      {"over the limit of 4096",
       [](Json& j) { j["model"]["vocab"][std::string(5000, 'x')] = 900; }},
      {"no token for byte 20", [](Json& j) { j["model"]["vocab"].erase("Ġ"); }},
      {"entry 0 needs the token 'zz'",
       [](Json& j) { j["model"]["merges"] = Json::array({Json::array({"z", "z"})}); }},
      {"entry 1 needs the token 'qqq'",
       [](Json& j) { j["model"]["merges"].push_back({"qqq", "a"}); }},
      {"entry 0 must be two parts", [](Json& j) { j["model"]["merges"] = {"ab"}; }},
      {"entry 0 must be two parts", [](Json& j) { j["model"]["merges"] = {"a b c"}; }},
      {"entry 0 has an empty part", [](Json& j) { j["model"]["merges"] = {" b"}; }},
      {"entry 0 must have two parts",
       [](Json& j) { j["model"]["merges"] = Json::array({{"a", "b", "c"}}); }},
      {"entry 0 must have two parts",
       [](Json& j) { j["model"]["merges"] = Json::array({Json::array({"a"})}); }},
      {"entry 0 must be", [](Json& j) { j["model"]["merges"] = Json::array({7}); }},
      {"entry 0 must be", [](Json& j) { j["model"]["merges"] = Json::array({{{"a", "b"}}}); }},
      {"entry 0 must be",
       [](Json& j) { j["model"]["merges"] = Json::array({Json::array({Json::array()})}); }},
      {"'Lowercase'", [](Json& j) { j["normalizer"] = {{"type", "Lowercase"}}; }},
      {"normalizer.form", [](Json& j) { j["normalizer"] = {{"type", "NFC"}, {"form", 1}}; }},
      {"'WordPiece'", [](Json& j) { j["decoder"] = {{"type", "WordPiece"}}; }},
      {"decoder", [](Json& j) { j["decoder"] = nullptr; }},
      {"'BertProcessing'", [](Json& j) { j["post_processor"] = {{"type", "BertProcessing"}}; }},
      {"post_processor.single",
       [](Json& j) { j["post_processor"] = {{"type", "TemplateProcessing"}, {"single", 1}}; }},
      {"'a?b'", [](Json& j) { j["pre_tokenizer"]["type"] = "a\nb"; }},
      {"id of 'x?y'", [](Json& j) { j["model"]["vocab"]["x\ny"] = -1; }},
      {"pre_tokenizer", [](Json& j) { j["pre_tokenizer"] = nullptr; }},
  };
  for (const Broken& broken : cases) {
    Json json = test_tokenizer_json({{"a", "b"}});
    broken.change(json);
    const Result<Tokenizer> tokenizer = Tokenizer::parse(json.dump());
    ASSERT_FALSE(tokenizer.is_ok()) << broken.part;
    const std::string& message = tokenizer.status().message();
    EXPECT_NE(message.find(broken.part), std::string::npos) << broken.part << ": " << message;
    EXPECT_EQ(message.find('\n'), std::string::npos);
  }
}

TEST(Tokenizer, RefusesBadAddedTokens) {
  const std::vector<Broken> cases = {
      {"is added twice", [](Json& t) { t.push_back(test_added_token(300, "<s>")); }},
      {"here and 300 elsewhere", [](Json& t) { t.push_back(test_added_token(301, "<s>")); }},
      {"belongs to another token", [](Json& t) { t.push_back(test_added_token(300, "<t>")); }},
      {"belongs to another token", [](Json& t) { t.push_back(test_added_token(65, "<t>")); }},
      {"here and 65 elsewhere", [](Json& t) { t.push_back(test_added_token(301, "A")); }},
      {"1 to 512 bytes", [](Json& t) { t.push_back(test_added_token(301, "")); }},
      {"1 to 512 bytes",
       [](Json& t) { t.push_back(test_added_token(301, std::string(600, 'x'))); }},
      {"whole number", [](Json& t) { t.push_back(test_added_token(-1, "<t>")); }},
      {"whole number", [](Json& t) { t.push_back(test_added_token(1 << 22, "<t>")); }},
      {"added_tokens[0].lstrip", [](Json& t) { t[0]["lstrip"] = 1; }},
      {"added_tokens[0].special", [](Json& t) { t[0].erase("special"); }},
      {"added_tokens[0].weight", [](Json& t) { t[0]["weight"] = 1; }},
      {"must be an object", [](Json& t) { t[0] = 5; }},
      {"must be a list", [](Json& t) { t = 5; }},
  };
  for (const Broken& broken : cases) {
    Json json = test_tokenizer_json();
    json["added_tokens"] = Json::array({test_added_token(300, "<s>")});
    broken.change(json["added_tokens"]);
    const Result<Tokenizer> tokenizer = Tokenizer::parse(json.dump());
    ASSERT_FALSE(tokenizer.is_ok()) << broken.part;
    const std::string& message = tokenizer.status().message();
    EXPECT_NE(message.find(broken.part), std::string::npos) << broken.part << ": " << message;
  }
}

TEST(Tokenizer, RefusesAddedTokensThatNormaliseToTheSameText) {
  Json json = test_tokenizer_json();
  json["normalizer"] = {{"type", "NFC"}};
  Json one = test_added_token(300, "<\u00e9>");
  Json two = test_added_token(301, "<e\u0301>");
  one["normalized"] = two["normalized"] = true;
  json["added_tokens"] = {one, two};
  const Result<Tokenizer> tokenizer = Tokenizer::parse(json.dump());
  ASSERT_FALSE(tokenizer.is_ok());
  EXPECT_NE(tokenizer.status().message().find("added_tokens[1]"), std::string::npos);
}

TEST(Tokenizer, RefusesBrokenJson) {
  const std::string good = test_tokenizer_json().dump();
  for (const std::string& text :
       {std::string(), std::string("[]"), std::string("{}"), good.substr(0, good.size() / 2),
        good + "}", "\xFF" + good, std::string(100000, '['),
        std::string("{\"model\":{\"vocab\":{\"a\":0,\"a\":1},\"merges\":[]}}"),
        std::string("{\"model\":{},\"model\":{}}"), std::string("{\"a\":\"\\ud800\"}")}) {
    const Result<Tokenizer> tokenizer = Tokenizer::parse(text);
    ASSERT_FALSE(tokenizer.is_ok()) << text.substr(0, 60);
    EXPECT_EQ(tokenizer.status().message().find('\n'), std::string::npos);
    EXPECT_LT(tokenizer.status().message().size(), 300u);
  }
  // Cut anywhere, the file is an error and never a crash.
  for (size_t at = 0; at + 1 < good.size(); at += 97) {
    EXPECT_FALSE(Tokenizer::parse(std::string_view(good).substr(0, at)).is_ok());
  }
}

TEST(Tokenizer, NamesTheFileThatIsMissing) {
  const Result<Tokenizer> tokenizer = Tokenizer::load("/nonexistent/tokenizer.json");
  ASSERT_FALSE(tokenizer.is_ok());
  EXPECT_EQ(tokenizer.status().code(), StatusCode::kNotFound);
  EXPECT_NE(tokenizer.status().message().find("/nonexistent/tokenizer.json"), std::string::npos);
}

RC_GTEST_PROP(Tokenizer, DecodeUndoesEncode, (const std::string& text)) {
  static const Tokenizer tokenizer = load(with_specials());
  const Ids ids = tokenizer.encode(text).value();
  RC_ASSERT(tokenizer.decode(ids, false) == replace_invalid_utf8(text));
}

TEST(Tokenizer, ManyThreadsShareOne) {
  const Tokenizer tokenizer = load(with_specials());
  const std::string text = "ab<|end|>abc \u00e9 abcab";
  const Ids expected = encode(tokenizer, text);
  std::vector<int> wrong(4, 0);
  std::vector<std::thread> threads;
  for (size_t t = 0; t < wrong.size(); ++t) {
    threads.emplace_back([&, t] {
      for (int i = 0; i < 200; ++i) wrong[t] += tokenizer.encode(text).value() != expected ? 1 : 0;
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(wrong, std::vector<int>(4, 0));
}

}  // namespace
}  // namespace motley
