// Texts with known ids: tests/cases/text/*.case, made with the Rust library.
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <sstream>
#include <string>
#include <vector>

#include "text/detokenizer.h"
#include "text/tokenizer.h"
#include "text/utf8.h"

namespace motley {
namespace {

namespace fs = std::filesystem;

fs::path pocket_tokenizer() {
  const fs::path source(MOTLEY_SOURCE_DIR);
  for (const char* place : {"models/pocket", "../shared/models/pocket-qwen35"}) {
    if (fs::exists(source / place / "tokenizer.json")) return source / place / "tokenizer.json";
  }
  return {};
}

std::string from_hex(const std::string& hex) {
  std::string bytes;
  for (size_t i = 0; i + 1 < hex.size(); i += 2) {
    bytes += static_cast<char>(std::stoi(hex.substr(i, 2), nullptr, 16));
  }
  return bytes;
}

struct Case {
  std::string text;
  std::vector<TokenId> ids;
};

std::vector<Case> read_cases(const fs::path& path) {
  std::vector<Case> cases;
  std::ifstream file(path);
  std::string line;
  while (std::getline(file, line)) {
    if (line.rfind("text: ", 0) == 0) {
      cases.push_back({nlohmann::json::parse(line.substr(6)).get<std::string>(), {}});
    } else if (line.rfind("bytes: ", 0) == 0) {
      cases.push_back({from_hex(line.substr(7)), {}});
    } else if (line.rfind("ids:", 0) == 0) {
      std::istringstream numbers(line.substr(4));
      TokenId id = 0;
      while (numbers >> id) cases.back().ids.push_back(id);
    }
  }
  return cases;
}

TEST(TokenizerCases, PocketVocabulary) {
  const fs::path path = pocket_tokenizer();
  if (path.empty()) GTEST_SKIP() << "neither models/pocket nor ../shared/models is there";
  const Result<Tokenizer> tokenizer = Tokenizer::load(path.string());
  ASSERT_TRUE(tokenizer.is_ok()) << tokenizer.status().message();
  const std::vector<Case> cases =
      read_cases(fs::path(MOTLEY_SOURCE_DIR) / "tests/cases/text/pocket-tokenizer.case");
  ASSERT_GE(cases.size(), 80u);
  for (const Case& test : cases) {
    const Result<std::vector<TokenId>> ids = tokenizer.value().encode(test.text);
    ASSERT_TRUE(ids.is_ok());
    EXPECT_EQ(ids.value(), test.ids) << nlohmann::json(replace_invalid_utf8(test.text)).dump();
    Detokenizer detokenizer(tokenizer.value(), false);
    std::string pieces;
    for (const TokenId id : test.ids) pieces += detokenizer.push(id);
    pieces += detokenizer.finish();
    EXPECT_EQ(pieces, tokenizer.value().decode(test.ids, false));
  }
}

}  // namespace
}  // namespace motley
