#include "text/added_tokens.h"

#include <gtest/gtest.h>

#include <chrono>
#include <string>
#include <vector>

namespace motley {
namespace {

std::vector<AddedToken> tokens_of(const std::vector<std::string>& contents) {
  std::vector<AddedToken> tokens;
  for (const std::string& content : contents) {
    AddedToken token;
    token.id = static_cast<TokenId>(tokens.size());
    token.content = content;
    token.special = true;
    tokens.push_back(token);
  }
  return tokens;
}

// The pieces joined by '|', tokens in square brackets.
std::string pieces(const std::vector<AddedToken>& tokens, const std::string& text,
                   bool skip_special = false) {
  AddedTokenMatcher matcher;
  for (size_t i = 0; i < tokens.size(); ++i) EXPECT_TRUE(matcher.add(tokens[i].content, i));
  std::string out;
  const Status status =
      matcher.split(text, tokens, skip_special, [&](const AddedTokenMatcher::Piece& piece) {
        if (!out.empty()) out += '|';
        out +=
            piece.token != nullptr ? "[" + std::string(piece.text) + "]" : std::string(piece.text);
        return Status::ok();
      });
  EXPECT_TRUE(status.is_ok());
  return out;
}

TEST(AddedTokens, LeftmostThenLongest) {
  const auto tokens = tokens_of({"<a>", "<a>>", "b<", "aa"});
  EXPECT_EQ(pieces(tokens, "x<a>y"), "x|[<a>]|y");
  EXPECT_EQ(pieces(tokens, "<a>>>"), "[<a>>]|>");
  EXPECT_EQ(pieces(tokens, "b<a>"), "[b<]|a>");
  EXPECT_EQ(pieces(tokens, "<a<a>"), "<a|[<a>]");
  EXPECT_EQ(pieces(tokens, "aaaaa"), "[aa]|[aa]|a");
  EXPECT_EQ(pieces(tokens, ""), "");
  EXPECT_EQ(pieces({}, "text"), "text");
}

// The cases of the Rust library's own tests (added_vocabulary.rs), as facts about its behaviour.
TEST(AddedTokens, SingleWord) {
  auto tokens = tokens_of({"<mask>"});
  tokens[0].single_word = true;
  EXPECT_EQ(pieces(tokens, "<mask> My name <mask> A<mask> <mask>ony <mask>"),
            "[<mask>]| My name |[<mask>]| A<mask> <mask>ony |[<mask>]");
  EXPECT_EQ(pieces(tokens, "<mask>, <mask>- \u25cc\u0330<mask>"),
            "[<mask>]|, |[<mask>]|- \u25cc\u0330<mask>");
}

TEST(AddedTokens, StripsUnicodeSpaces) {
  auto tokens = tokens_of({"<mask>"});
  tokens[0].single_word = tokens[0].lstrip = tokens[0].rstrip = true;
  EXPECT_EQ(pieces(tokens, "Hi <mask> there\t<mask>\t<mask>\u2000"),
            "Hi|[ <mask> ]|there|[\t<mask>\t]|[<mask>\u2000]");
}

// Expected values: the Rust library 0.23.
TEST(AddedTokens, StrippingOverOtherMatches) {
  auto tokens = tokens_of({"\t", "<a>"});
  tokens[1].rstrip = true;
  EXPECT_EQ(pieces(tokens, "<a>\t  y"), "[<a>\t  ]|[\t]|  y");
  tokens[0].rstrip = true;
  EXPECT_EQ(pieces(tokens, "x\t\ty"), "x|[\t\t]|[\t]|y");
  tokens[0].lstrip = true;
  EXPECT_EQ(pieces(tokens, "x\t\ty"), "x|[\t\t]|y");
}

TEST(AddedTokens, TokensOfWhiteSpaceThatStripAreNotQuadratic) {
  auto tokens = tokens_of({"\t", "\n"});
  tokens[0].rstrip = tokens[1].lstrip = true;
  AddedTokenMatcher matcher;
  for (size_t i = 0; i < tokens.size(); ++i) ASSERT_TRUE(matcher.add(tokens[i].content, i));
  size_t found = 0;
  const std::string text = "x" + std::string(1000000, '\t') + std::string(1000000, '\n') + "y";
  const auto start = std::chrono::steady_clock::now();
  const Status status =
      matcher.split(text, tokens, false, [&](const AddedTokenMatcher::Piece& piece) {
        found += piece.token != nullptr ? 1 : 0;
        return Status::ok();
      });
  EXPECT_TRUE(status.is_ok());
  EXPECT_GE(found, 1000000u);
  EXPECT_LT(std::chrono::steady_clock::now() - start, std::chrono::seconds(10));
}

TEST(AddedTokens, SpecialOnesCanBeLeftAsText) {
  auto tokens = tokens_of({"<s>", "<think>"});
  tokens[1].special = false;
  EXPECT_EQ(pieces(tokens, "<s><think>", true), "<s>|[<think>]");
}

TEST(AddedTokens, RefusesTheSameTextTwice) {
  AddedTokenMatcher matcher;
  EXPECT_TRUE(matcher.add("x", 0));
  EXPECT_TRUE(matcher.add("xy", 1));
  EXPECT_FALSE(matcher.add("x", 2));
}

}  // namespace
}  // namespace motley
