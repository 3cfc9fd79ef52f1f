#include "text/regex.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "text/nfc.h"
#include "text/regex_syntax.h"
#include "text/utf8.h"

namespace motley {
namespace {

// The text with every match in angle brackets.
std::string marked(const std::string& pattern, const std::string& text) {
  const Result<Regex> regex = Regex::compile(pattern);
  if (!regex.is_ok()) return "error: " + regex.status().message();
  Regex::Scratch scratch;
  std::string out;
  size_t at = 0;
  while (at < text.size()) {
    const auto match = regex.value().search(text, at, scratch);
    if (!match.is_ok()) return "error: " + match.status().message();
    if (!match.value()) break;
    if (match.value()->end == match.value()->begin) {
      const size_t length = next_utf8(text.substr(at)).length;
      out += text.substr(at, length);
      at += length;
      continue;
    }
    out += text.substr(at, match.value()->begin - at) + "<" +
           text.substr(match.value()->begin, match.value()->end - match.value()->begin) + ">";
    at = match.value()->end;
  }
  return out + text.substr(at);
}

struct Case {
  std::string pattern;
  std::string text;
  std::string expected;
};

// Expected values were produced with the Rust tokenizers library 0.23 (Oniguruma).
TEST(Regex, MeansWhatOnigurumaMeans) {
  const std::vector<Case> cases = {
      {"(?i:'s|'t|'k)", "x'ſ y'S z'\u212A", "x<'ſ> y<'S> z<'\u212A>"},
      {"a{1,2}+", "aaaaab", "<aaaaa>b"},
      {"a{1,2}", "aaab", "<aa><a>b"},
      {"b{,2}", "abbb", "a<bb><b>"},
      {"^a", "a\na\n", "<a>\n<a>\n"},
      {"a$", "a\na\n", "<a>\n<a>\n"},
      {"a.", "a\na\ra\u2028", "a\n<a\r><a\u2028>"},
      {"[a&&[^b]]x", "ax bx", "<ax> bx"},
      {"[\\p{L}&&[^\\p{Han}]]+", "ab漢字cd", "<ab>漢字<cd>"},
      {"[a-c[x-z]]+", "abxzq", "<abxz>q"},
      {"[^a[b]]+", "abxzq", "ab<xzq>"},
      {"(?<=b)c", "abc", "ab<c>"},
      {"(?<!a)b", "ab b", "ab <b>"},
      {"[]a]", "]a", "<]><a>"},
      {"[a-]", "-a", "<-><a>"},
      {"[+--]", "+,-", "<+><,><->"},
      {"[a-a\\-z]", "a-z", "<a><-><z>"},
      {"[\\p{^L}]", "a1", "a<1>"},
      {"\\P{^L}", "a1", "<a>1"},
      {"\\p{Letter}", "a1", "<a>1"},
      {"\\p{lu}", "aB", "a<B>"},
      {"\\p{LC}", "aB", "<a><B>"},
      {"\\p{Alphabetic}+", "a\u03451", "<a\u0345>1"},
      {"\\p{Han}", "漢々〆ー", "<漢><々>〆ー"},
      {"\\x{61}\\u0062\\x63", "abc", "<abc>"},
      {"[\\S]", "a b", "<a> <b>"},
      {"[^\\S]", "a b", "a< >b"},
      {"[&a]", "a&", "<a><&>"},
      {"a++", "aaab", "<aaa>b"},
      {"a*+a", "aaab", "aaab"},
      {"a?+a", "aab", "<aa>b"},
      {"(?>a|ab)c", "abc", "abc"},
      {"b+?", "abb", "a<b><b>"},
      {"\\Aa", "aa", "<a>a"},
      {"a\\z", "aa\n", "aa\n"},
      {"a\\Z", "aa\n", "a<a>\n"},
      {"(?i:[k])", "\u212A", "<\u212A>"},
      {"(?i:[^s])", "ſs", "ſs"},
      {"(?-i:a)", "aA", "<a>A"},
      {"{", "a{b", "a<{>b"},
      {"a{2", "a{2", "<a{2>"},
      {"a]}", "a]}", "<a]}>"},
      {"\\/\\ \\_\\é", "/ _é", "</ _é>"},
      {"\\h+", "xfF0g", "x<fF0>g"},
      {"\\d", "٣²", "<٣>²"},
      {"\\w+", "aé_² -", "<aé_²> -"},
      {"[\\w]+", "a² -", "<a>² -"},
      {"\\W", "a-", "a<->"},
  };
  for (const Case& test : cases) {
    EXPECT_EQ(marked(test.pattern, test.text), test.expected) << test.pattern;
  }
}

TEST(Regex, WhiteSpaceIsTheUnicodePropertyExactly) {
  const Result<Regex> space = Regex::compile("\\s");
  const Result<Regex> not_space = Regex::compile("[\\S]");
  ASSERT_TRUE(space.is_ok() && not_space.is_ok());
  Regex::Scratch scratch;
  for (char32_t c = 0; c < 0x110000; ++c) {
    if (c >= 0xD800 && c <= 0xDFFF) continue;
    std::string text;
    append_utf8(c, text);
    const bool matches = space.value().search(text, 0, scratch).value().has_value();
    ASSERT_EQ(matches, is_white_space(c)) << static_cast<uint32_t>(c);
    ASSERT_NE(matches, not_space.value().search(text, 0, scratch).value().has_value());
  }
}

TEST(Regex, RefusesByName) {
  const std::vector<std::pair<std::string, std::string>> cases = {
      {"(a)\\1", "'\\1'"},
      {"\\bx", "'\\b'"},
      {"\\R", "'\\R'"},
      {"(?<n>a)", "(?<n"},
      {"(?x: a)", "(?x:"},
      {"(*FAIL)", "(*FA"},
      {"(?i)a", "(?i)"},
      {"[[:alpha:]]", "POSIX"},
      {"a**", "nothing to repeat"},
      {"*a", "nothing"},
      {"(a", "never closed"},
      {"a)", "without a '('"},
      {"[a", "never closed"},
      {"[]", "never closed"},
      {"[b-a]", "counts down"},
      {"[a-\\d]", "a set"},
      {"[\\d-z]", "a set"},
      {"\\p{Nope}", "compile"},
      {"\\p{", "without"},
      {"\\p{a=b}", "'a=b'"},
      {"\\x{110000}", "outside Unicode"},
      {"a{2000}", "above"},
      {"a{3,2}", "counts down"},
      {"a\\", "backslash"},
      {"[a&&]", "empty"},
      {"[\\W]", "\\W"},
      {"\\u12", "too few"},
      {"(?\n)",
       "(?"
       "?)"},
      {"\\p{\n}", "'?'"},
      {"(?m:.)", "(?m:"},
      {"\\pL", "without {name}"},
      {"(?<=a+)b", "compile"},
  };
  for (const auto& [pattern, part] : cases) {
    const Result<Regex> regex = Regex::compile(pattern);
    ASSERT_FALSE(regex.is_ok()) << pattern;
    EXPECT_NE(regex.status().message().find(part), std::string::npos)
        << pattern << ": " << regex.status().message();
    EXPECT_EQ(regex.status().message().find('\n'), std::string::npos);
  }
  EXPECT_FALSE(Regex::compile(std::string(kMaxPatternBytes + 1, 'a')).is_ok());
  EXPECT_FALSE(Regex::compile(std::string(100, '(') + std::string(100, ')')).is_ok());
  EXPECT_FALSE(Regex::compile(std::string(100, '[') + "a" + std::string(100, ']')).is_ok());
  EXPECT_FALSE(Regex::compile("\xFF").is_ok());
}

TEST(Regex, CatastrophicBacktrackingEndsWithAnError) {
  const Result<Regex> regex = Regex::compile("(?:a|aa)+\\d");
  ASSERT_TRUE(regex.is_ok());
  Regex::Scratch scratch;
  const auto match = regex.value().search(std::string(5000, 'a'), 0, scratch);
  ASSERT_FALSE(match.is_ok());
  EXPECT_EQ(match.status().code(), StatusCode::kResourceExhausted);
}

TEST(Regex, LongWordsThroughIntersectionsFitTheStack) {
  const std::string text(1000000, 'a');
  EXPECT_EQ(marked("[\\p{L}&&[^\\p{Han}]]+", text), "<" + text + ">");
}

}  // namespace
}  // namespace motley
