#include "text/byte_alphabet.h"

#include <gtest/gtest.h>

#include <set>
#include <string>

namespace motley {
namespace {

TEST(ByteAlphabet, KnownSpellings) {
  EXPECT_EQ(spelling_of_bytes(" the\n"), "ĠtheĊ");
  EXPECT_EQ(spelling_of_bytes("\xC3\xA9"), "Ã©");
  EXPECT_EQ(bytes_of_spelling("Ġthe"), " the");
}

TEST(ByteAlphabet, EveryByteHasItsOwnCharacter) {
  std::set<std::string> seen;
  for (int byte = 0; byte < 256; ++byte) {
    const std::string one(1, static_cast<char>(byte));
    const std::string spelling = spelling_of_bytes(one);
    EXPECT_TRUE(seen.insert(spelling).second);
    EXPECT_EQ(bytes_of_spelling(spelling), one);
  }
}

TEST(ByteAlphabet, RefusesOtherCharacters) {
  EXPECT_FALSE(bytes_of_spelling("a b"));
  EXPECT_FALSE(bytes_of_spelling("<｜begin｜>"));
  EXPECT_FALSE(bytes_of_spelling("\xFF"));
  EXPECT_EQ(bytes_of_spelling(""), "");
}

}  // namespace
}  // namespace motley
