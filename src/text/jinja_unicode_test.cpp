#include "text/jinja_unicode.h"

#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <algorithm>

#include "text/jinja_special_cases.h"

namespace motley::jinja {
namespace {

TEST(JinjaUnicode, Validates) {
  EXPECT_TRUE(is_valid_utf8("aé漢🙂\xEF\xBF\xBD"));
  for (const std::string_view text : {"\x80", "a\xC3", "\xC0\x80", "\xED\xA0\x80",
                                      "\xF5\x80\x80\x80", "\xE6\xBC", "\xF0\x9F\x99"}) {
    EXPECT_FALSE(is_valid_utf8(text));
  }
}

TEST(JinjaUnicode, MapsCase) {
  EXPECT_EQ(to_upper("straße ŉ ﬁ ǆ"), "STRASSE ʼN FI Ǆ");
  EXPECT_EQ(to_lower("ÀÉ İ"), "àé i̇");
  EXPECT_EQ(to_lower("ΟΔΟΣ ΣΑΣ Σ"), "οδος σας σ");
  EXPECT_EQ(to_lower("ΑΣ.Α ΑΣ."), "ασ.α ας.");
  EXPECT_EQ(to_title("hello wORLD they're ǆ ﬁx"), "Hello World They'Re ǅ Fix");
  EXPECT_EQ(to_capitalized("éCOLE"), "École");
  EXPECT_EQ(to_swapped_case("aBß"), "AbSS");
  EXPECT_EQ(to_casefold("Straße ΣΑΣ"), "strasse σασ");
}

TEST(JinjaUnicode, SpecialCasesAreSorted) {
  EXPECT_TRUE(
      std::is_sorted(kSpecialCases.begin(), kSpecialCases.end(),
                     [](const auto& a, const auto& b) { return a.code_point < b.code_point; }));
}

TEST(JinjaUnicode, Strips) {
  EXPECT_EQ(strip_space(" \t\n\u00a0\u3000x\u2028 y\u0085\x1f"), "x\u2028 y");
  EXPECT_EQ(strip_space(" x ", Side::kLeft), "x ");
  EXPECT_EQ(strip_space(" x ", Side::kRight), " x");
  EXPECT_EQ(strip_space(" \n "), "");
  EXPECT_EQ(strip_characters("é-x-é", "-é", Side::kBoth), "x");
  EXPECT_EQ(strip_characters("ééé", "é", Side::kBoth), "");
  EXPECT_EQ(strip_characters("x", "", Side::kBoth), "x");
}

TEST(JinjaUnicode, Classes) {
  EXPECT_TRUE(is_space(0x3000) && is_space(0x1C) && !is_space(0x200B));
  EXPECT_TRUE(is_printable(' ') && !is_printable(0xA0) && !is_printable(0xAD) &&
              is_printable(0x1F642) && !is_printable(0xE000) && !is_printable(0x378));
  EXPECT_TRUE(is_digit(0xB2) && !is_decimal(0xB2) && is_numeric(0xBD) && is_decimal(0x0663));
  EXPECT_TRUE(is_word('_') && is_word(0x6F22) && !is_word('-'));
}

TEST(JinjaUnicode, SplitsLines) {
  using Lines = std::vector<std::string_view>;
  EXPECT_EQ(split_lines("a\nb\r\nc\rd\n", false), (Lines{"a", "b", "c", "d"}));
  EXPECT_EQ(split_lines("a\r\n\nb", true), (Lines{"a\r\n", "\n", "b"}));
  EXPECT_EQ(split_lines("", false), Lines{});
  EXPECT_EQ(split_lines("\n", false), Lines{""});
}

// Code points of any plane, without surrogates.
rc::Gen<std::vector<char32_t>> any_text() {
  return rc::gen::container<std::vector<char32_t>>(
      rc::gen::map(rc::gen::inRange<std::uint32_t>(0, 0x10F800), [](std::uint32_t number) {
        return static_cast<char32_t>(number < 0xD800 ? number : number + 0x800);
      }));
}

RC_GTEST_PROP(JinjaUnicode, DecodingUndoesEncoding, ()) {
  const std::vector<char32_t> text = *any_text();
  const std::string bytes = encode_utf8(text);
  RC_ASSERT(is_valid_utf8(bytes));
  RC_ASSERT(decode_utf8(bytes) == text);
  RC_ASSERT(count_code_points(bytes) == text.size());
}

RC_GTEST_PROP(JinjaUnicode, OffsetsMatchDecoding, ()) {
  const std::vector<char32_t> text = *any_text();
  const std::size_t index = *rc::gen::inRange<std::size_t>(0, text.size() + 3);
  const std::string bytes = encode_utf8(text);
  const std::vector<char32_t> head(
      text.begin(), text.begin() + static_cast<std::ptrdiff_t>(std::min(index, text.size())));
  RC_ASSERT(byte_offset(bytes, index, false) == encode_utf8(head).size());
}

RC_GTEST_PROP(JinjaUnicode, BrokenBytesAreReadInBounds, (const std::string& bytes)) {
  std::size_t position = 0;
  while (position < bytes.size()) {
    const std::size_t before = position;
    next_code_point(bytes, position);
    RC_ASSERT(position > before && position <= bytes.size());
  }
}

}  // namespace
}  // namespace motley::jinja
