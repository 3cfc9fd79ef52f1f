#include "text/utf8.h"

#include <gtest/gtest.h>
#include <rapidcheck.h>
#include <rapidcheck/gtest.h>

#include <string>
#include <vector>

namespace motley {
namespace {

TEST(Utf8, ReplacesMaximalSubparts) {
  // Expected values: Unicode Standard 3.9, tables 3-8 to 3-11, and TextDecoder.
  const std::string r(kReplacementCharacter);
  EXPECT_EQ(replace_invalid_utf8("abc"), "abc");
  EXPECT_EQ(replace_invalid_utf8("\xC0\xAF\xE0\x80\xBF\xF0\x81\x82\x41"),
            r + r + r + r + r + r + r + r + "A");
  EXPECT_EQ(replace_invalid_utf8("\xED\xA0\x80\xED\xBF\xBF\xED\xAF\x41"),
            r + r + r + r + r + r + r + r + "A");
  EXPECT_EQ(replace_invalid_utf8("\xF4\x91\x92\x93\xFF\x41\x80\xBF\x42"),
            r + r + r + r + r + "A" + r + r + "B");
  EXPECT_EQ(replace_invalid_utf8("\xE1\x80\xE2\xF0\x91\x92\xF1\xBF\x41"), r + r + r + r + "A");
  EXPECT_EQ(replace_invalid_utf8("x\xE2\x82"), "x" + r);
}

TEST(Utf8, KnowsIncompleteFromInvalid) {
  EXPECT_EQ(next_utf8("\xF0\x9F\x98").state, Utf8State::kIncomplete);
  EXPECT_EQ(next_utf8("\xF0\x9F\x98").length, 3u);
  EXPECT_EQ(next_utf8("\xF0\x8F").state, Utf8State::kInvalid);
  EXPECT_EQ(next_utf8("\xC3").state, Utf8State::kIncomplete);
  EXPECT_EQ(next_utf8("\xFF").state, Utf8State::kInvalid);
}

TEST(Utf8, EveryScalarValueSurvivesARoundTrip) {
  for (char32_t c = 0; c < 0x110000; ++c) {
    if (c >= 0xD800 && c <= 0xDFFF) continue;
    std::string text;
    append_utf8(c, text);
    const Utf8Step step = next_utf8(text);
    ASSERT_EQ(step.state, Utf8State::kValid);
    ASSERT_EQ(step.length, text.size());
    ASSERT_EQ(step.code_point, c);
  }
}

TEST(Utf8, ExcerptsAreOneLineOfWholeCharacters) {
  EXPECT_EQ(printable_excerpt("a\nb\x7F"), "a?b?");
  EXPECT_EQ(printable_excerpt("ab\u00e9d", 3), "ab...");
  EXPECT_EQ(printable_excerpt("\xFFx"), "...");
}

RC_GTEST_PROP(Utf8, RepairedTextIsValidAndStays, (const std::vector<uint8_t>& bytes)) {
  const std::string text(bytes.begin(), bytes.end());
  const std::string repaired = replace_invalid_utf8(text);
  RC_ASSERT(is_valid_utf8(repaired));
  RC_ASSERT(replace_invalid_utf8(repaired) == repaired);
  if (is_valid_utf8(text)) RC_ASSERT(repaired == text);
}

}  // namespace
}  // namespace motley
