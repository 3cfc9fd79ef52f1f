#include "text/tokenizer_config.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>

#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

#include "support/test_files.h"
#include "text/test_tokenizer.h"

namespace motley {
namespace {

TEST(TokenizerConfig, ReadsTokensAndTemplate) {
  const Result<TokenizerConfig> config = TokenizerConfig::parse(R"({
    "bos_token": null, "eos_token": {"content": "<e>", "lstrip": false}, "pad_token": "<p>",
    "add_bos_token": true, "chat_template": "{{ messages }}", "model_max_length": 1e30,
    "added_tokens_decoder": {"12": {"content": "<p>"}, "7": {"content": "<e>"}}})");
  ASSERT_TRUE(config.is_ok()) << config.status().message();
  EXPECT_FALSE(config.value().bos_token);
  EXPECT_EQ(config.value().eos_token, "<e>");
  EXPECT_EQ(config.value().pad_token, "<p>");
  EXPECT_TRUE(config.value().add_bos_token);
  EXPECT_FALSE(config.value().add_eos_token);
  ASSERT_NE(config.value().chat_template(), nullptr);
  EXPECT_EQ(*config.value().chat_template(), "{{ messages }}");
  EXPECT_EQ(config.value().chat_template("tool_use"), nullptr);
  ASSERT_EQ(config.value().added_tokens.size(), 2u);
  EXPECT_EQ(config.value().added_tokens[0].first, 7);
}

TEST(TokenizerConfig, ReadsNamedTemplates) {
  const Result<TokenizerConfig> config = TokenizerConfig::parse(
      R"({"chat_template": [{"name": "default", "template": "a"},
                            {"name": "tool_use", "template": "b"}]})");
  ASSERT_TRUE(config.is_ok());
  EXPECT_EQ(*config.value().chat_template("tool_use"), "b");
}

TEST(TokenizerConfig, RefusesByName) {
  const std::vector<std::pair<std::string, std::string>> cases = {
      {"[]", "JSON object"},
      {R"({"bos_token": 5})", "bos_token"},
      {R"({"eos_token": {"text": "x"}})", "eos_token"},
      {R"({"pad_token": ""})", "pad_token"},
      {R"({"add_bos_token": "yes"})", "add_bos_token"},
      {R"({"chat_template": 5})", "chat_template"},
      {R"({"chat_template": [{"name": "a"}]})", "chat_template"},
      {R"({"chat_template": [{"name": "a", "template": "x"}, {"name": "a", "template": "y"}]})",
       "twice"},
      {R"({"added_tokens_decoder": []})", "added_tokens_decoder"},
      {R"({"added_tokens_decoder": {"x": {"content": "a"}}})", "not an id"},
      {R"({"added_tokens_decoder": {"-1": {"content": "a"}}})", "not an id"},
      {R"({"added_tokens_decoder": {"99999999999": {"content": "a"}}})", "not an id"},
      {R"({"added_tokens_decoder": {"1": {}}})", "added_tokens_decoder.1"},
      {R"({"bos_token": "a", "bos_token": "b"})", "twice"},
      {"{", "not valid JSON"},
  };
  for (const auto& [json, part] : cases) {
    const Result<TokenizerConfig> config = TokenizerConfig::parse(json);
    ASSERT_FALSE(config.is_ok()) << json;
    EXPECT_NE(config.status().message().find(part), std::string::npos) << config.status().message();
  }
  const std::string large = R"({"chat_template": ")" + std::string(kMaxChatTemplateBytes + 1, 'x');
  EXPECT_FALSE(TokenizerConfig::parse(large + "\"}").is_ok());
  EXPECT_FALSE(TokenizerConfig::parse(std::string(1000, '[')).is_ok());
}

Result<TokenizerConfig> load_config(const TemporaryDirectory& directory) {
  FaultPoints faults;
  const Result<ModelDirectory> opened = ModelDirectory::open(faults, directory.path());
  if (!opened.is_ok()) return opened.status();
  return TokenizerConfig::load_directory(*opened);
}

TEST(TokenizerConfig, TheTemplateFileReplacesTheDefault) {
  const TemporaryDirectory directory;
  const Result<TokenizerConfig> nothing = load_config(directory);
  ASSERT_TRUE(nothing.is_ok());
  EXPECT_EQ(nothing.value().chat_template(), nullptr);
  directory.write("tokenizer_config.json", R"({"chat_template": "old"})");
  EXPECT_EQ(load_config(directory).value().find_template()->file,
            directory / "tokenizer_config.json");
  directory.write("chat_template.jinja", "new");
  const Result<TokenizerConfig> both = load_config(directory);
  ASSERT_TRUE(both.is_ok());
  EXPECT_EQ(*both.value().chat_template(), "new");
  EXPECT_EQ(both.value().find_template()->file, directory / "chat_template.jinja");
  directory.write("tokenizer_config.json", "{");
  const Result<TokenizerConfig> broken = load_config(directory);
  ASSERT_FALSE(broken.is_ok());
  EXPECT_NE(broken.status().message().find("tokenizer_config.json"), std::string::npos);
}

// A file that exists is read or refused, never taken for absent; nothing hangs or is read at
// length.
TEST(TokenizerConfig, OddFilesAreRefused) {
  for (const std::string name : {"tokenizer_config.json", "chat_template.jinja"}) {
    const auto refusal = [&name](const auto& make) {
      const TemporaryDirectory directory;
      make(directory / name);
      const Result<TokenizerConfig> config = load_config(directory);
      EXPECT_NE(config.status().message().find(directory / name), std::string::npos);
      return config.status().message();
    };
    using testing::HasSubstr;
    EXPECT_THAT(refusal([](const std::string& path) { ASSERT_EQ(mkfifo(path.c_str(), 0600), 0); }),
                HasSubstr("not a regular file"));
    EXPECT_THAT(refusal([](const std::string& path) {
                  std::ofstream(path) << "x";
                  std::filesystem::resize_file(path, uintmax_t{1} << 40);
                }),
                HasSubstr("exceed the limit"));
    for (const char* target : {"/dev/zero", "/etc/passwd", "nowhere"}) {
      EXPECT_THAT(refusal([&](const auto& path) { std::filesystem::create_symlink(target, path); }),
                  HasSubstr("is a symbolic link"));
    }
    EXPECT_THAT(refusal([](const std::string& path) { std::filesystem::create_directory(path); }),
                HasSubstr("not a regular file"));
  }
}

TEST(TokenizerConfig, MustFitItsTokenizer) {
  nlohmann::json json = test_tokenizer_json();
  json["added_tokens"] = nlohmann::json::array({test_added_token(300, "<e>")});
  const Tokenizer tokenizer = Tokenizer::parse(json.dump()).value();
  const auto check = [&tokenizer](const std::string& text) {
    return TokenizerConfig::parse(text).value().check_against(tokenizer);
  };
  EXPECT_TRUE(check(R"({"eos_token": "<e>", "added_tokens_decoder": {"300": {"content": "<e>"}}})")
                  .is_ok());
  EXPECT_FALSE(check(R"({"added_tokens_decoder": {"301": {"content": "<e>"}}})").is_ok());
  EXPECT_FALSE(check(R"({"added_tokens_decoder": {"300": {"content": "<f>"}}})").is_ok());
  const Status missing = check(R"({"eos_token": "<f>"})");
  ASSERT_FALSE(missing.is_ok());
  EXPECT_NE(missing.message().find("eos_token"), std::string::npos);
}

}  // namespace
}  // namespace motley
