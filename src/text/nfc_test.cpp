#include "text/nfc.h"

#include <gtest/gtest.h>
#include <rapidcheck.h>
#include <rapidcheck/gtest.h>
#include <utf8proc.h>

#include <chrono>
#include <cstdlib>
#include <string>
#include <vector>

#include "text/utf8.h"

namespace motley {
namespace {

// utf8proc's own driver, as the judge.
std::string judge(const std::string& text) {
  utf8proc_uint8_t* out = nullptr;
  const utf8proc_ssize_t length =
      utf8proc_map(reinterpret_cast<const utf8proc_uint8_t*>(text.data()),
                   static_cast<utf8proc_ssize_t>(text.size()), &out,
                   static_cast<utf8proc_option_t>(UTF8PROC_STABLE | UTF8PROC_COMPOSE));
  EXPECT_GE(length, 0);
  std::string result(reinterpret_cast<const char*>(out), static_cast<size_t>(length));
  std::free(out);
  return result;
}

TEST(Nfc, KnownCases) {
  EXPECT_EQ(normalize_nfc("e\u0301"), "\u00e9");
  EXPECT_EQ(normalize_nfc("\u212b"), "\u00c5");
  EXPECT_EQ(normalize_nfc("\u1100\u1161\u11a8"), "\uac01");
  EXPECT_EQ(normalize_nfc("\uac00\u11a8"), "\uac01");
  EXPECT_EQ(normalize_nfc("q\u0307\u0323"), "q\u0323\u0307");
  EXPECT_EQ(normalize_nfc("\u0958"), "\u0915\u093c");  // a composition exclusion
  EXPECT_EQ(normalize_nfc("\u0301abc"), "\u0301abc");
  EXPECT_EQ(normalize_nfc(""), "");
}

TEST(Nfc, EveryCharacterAloneAndBetweenOthers) {
  for (char32_t c = 1; c < 0x30000; ++c) {
    if (c >= 0xD800 && c <= 0xDFFF) continue;
    std::string text = "e";
    append_utf8(c, text);
    text += "\u0323\u0301 x";
    append_utf8(c, text);
    ASSERT_EQ(normalize_nfc(text), judge(text)) << "U+" << std::hex << static_cast<uint32_t>(c);
  }
}

RC_GTEST_PROP(Nfc, AgreesWithTheLibrary, ()) {
  static const std::vector<char32_t> kInteresting = {
      'a',   'e',     0x301,   0x323,   0x345, 0x308,  0x1100, 0x1161, 0x11A8, 0xAC00, 0x1EBF,
      0xC5,  0x212B,  0x9C7,   0x9BE,   0x9D7, 0xF71,  0xF72,  0xF74,  0x958,  0x3099, 0x304B,
      0x344, 0x1D15E, 0x11099, 0x110BA, 0x338, 0x2260, 0x3D,   0x5D0,  0x5B0,  0xFB2A};
  std::string text;
  for (const size_t index :
       *rc::gen::container<std::vector<size_t>>(rc::gen::inRange<size_t>(0, kInteresting.size()))) {
    append_utf8(kInteresting[index], text);
  }
  const std::string normalized = normalize_nfc(text);
  RC_ASSERT(normalized == judge(text));
  RC_ASSERT(normalize_nfc(normalized) == normalized);
}

TEST(Nfc, LongRunsOfMarksAreNotQuadratic) {
  // Descending classes: the worst case of an insertion sort.
  std::string text = "a";
  for (int i = 0; i < 100000; ++i) text += "\u0345";
  for (int i = 0; i < 100000; ++i) text += "\u0323";
  const auto start = std::chrono::steady_clock::now();
  const std::string normalized = normalize_nfc(text);
  EXPECT_EQ(normalized.substr(0, 3), "\u1ea1");
  EXPECT_LT(std::chrono::steady_clock::now() - start, std::chrono::seconds(5));
}

TEST(CharacterClasses, WhiteSpaceAndWords) {
  for (const char32_t c : {0x9U, 0x20U, 0x85U, 0xA0U, 0x1680U, 0x2000U, 0x2028U, 0x3000U}) {
    EXPECT_TRUE(is_white_space(c));
  }
  for (const char32_t c : {0x0U, 0x41U, 0x180EU, 0x200BU, 0xFEFFU}) EXPECT_FALSE(is_white_space(c));
  for (const char32_t c : {0x41U, 0xE9U, 0x300U, 0x37U, 0x5FU, 0x24B6U, 0x200DU, 0x4E00U}) {
    EXPECT_TRUE(is_word_character(c));
  }
  for (const char32_t c : {0x20U, 0x2DU, 0x3CU, 0x2260U, 0xB2U}) EXPECT_FALSE(is_word_character(c));
}

}  // namespace
}  // namespace motley
