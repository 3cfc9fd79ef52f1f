#include "text/detokenizer.h"

#include <gtest/gtest.h>
#include <rapidcheck.h>
#include <rapidcheck/gtest.h>

#include <string>
#include <vector>

#include "text/test_tokenizer.h"
#include "text/utf8.h"

namespace motley {
namespace {

const Tokenizer& tokenizer() {
  static const Tokenizer kTokenizer = [] {
    nlohmann::json json = test_tokenizer_json({{"\xF0", "\x9F"}, {"\xE2", "\x82"}});
    json["added_tokens"] = nlohmann::json::array({test_added_token(300, "<end>")});
    return Tokenizer::parse(json.dump()).value();
  }();
  return kTokenizer;
}

TEST(Detokenizer, HoldsACharacterUntilItIsWhole) {
  Detokenizer detokenizer(tokenizer(), false);
  EXPECT_EQ(detokenizer.push('a'), "a");
  EXPECT_EQ(detokenizer.push(256), "");  // F0 9F
  EXPECT_TRUE(detokenizer.has_pending());
  EXPECT_EQ(detokenizer.push(0x98), "");
  EXPECT_EQ(detokenizer.push(0x80), "\U0001F600");
  EXPECT_EQ(detokenizer.finish(), "");
}

TEST(Detokenizer, GivesUpOnACharacterAsSoonAsItCannotCome) {
  Detokenizer detokenizer(tokenizer(), false);
  EXPECT_EQ(detokenizer.push(256), "");
  EXPECT_EQ(detokenizer.push('b'), "\uFFFDb");
  EXPECT_EQ(detokenizer.push(0xFF), "\uFFFD");
  EXPECT_EQ(detokenizer.push(257), "");
  EXPECT_EQ(detokenizer.finish(), "\uFFFD");
  EXPECT_EQ(detokenizer.finish(), "");
}

TEST(Detokenizer, SkipsSpecialTokens) {
  Detokenizer skipping(tokenizer(), true);
  EXPECT_EQ(skipping.push(300), "");
  Detokenizer showing(tokenizer(), false);
  EXPECT_EQ(showing.push(300), "<end>");
}

RC_GTEST_PROP(Detokenizer, PiecesAreValidAndAddUpToDecode, (bool skip_special)) {
  const auto ids = *rc::gen::container<std::vector<TokenId>>(rc::gen::oneOf(
      rc::gen::inRange<TokenId>(-1, 303), rc::gen::inRange<TokenId>(0x80, 0x100),
      rc::gen::element<TokenId>(0xF0, 0x9F, 0x98, 0x80, 0xE2, 0x82, 0xAC, 256, 257, 300)));
  Detokenizer detokenizer(tokenizer(), skip_special);
  std::string text;
  for (const TokenId id : ids) {
    const std::string piece = detokenizer.push(id);
    RC_ASSERT(is_valid_utf8(piece));
    text += piece;
  }
  text += detokenizer.finish();
  RC_ASSERT(text == tokenizer().decode(ids, skip_special));
}

}  // namespace
}  // namespace motley
