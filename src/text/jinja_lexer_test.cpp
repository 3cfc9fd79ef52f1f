#include "text/jinja_lexer.h"

#include <gtest/gtest.h>

namespace motley::jinja {
namespace {

// Tokens as "kind:text" separated by spaces.
std::string lex(std::string_view source) {
  static constexpr std::string_view kKinds[] = {"data",   "{%",  "%}",    "{{",       "}}", "name",
                                                "string", "int", "float", "operator", "end"};
  const Result<std::vector<Token>> tokens = tokenize(source);
  if (!tokens) return tokens.status().message();
  std::string out;
  for (const Token& token : *tokens) {
    if (token.kind == TokenKind::kEnd) break;
    if (!out.empty()) out += ' ';
    const std::string_view kind = kKinds[static_cast<std::size_t>(token.kind)];
    out += kind;
    if (kind[0] != '{' && kind[1] != '}') out += ":" + token.text;
  }
  return out;
}

TEST(JinjaLexer, SplitsNumbers) {
  EXPECT_EQ(lex("{{ 12 1_000 1.5 1e5 2.5E-3 }}"),
            "{{ int:12 int:1_000 float:1.5 float:1e5 float:2.5E-3 }}");
  EXPECT_EQ(lex("{{ 0x1F 0b10 0o17 00 }}"), "{{ int:0x1F int:0b10 int:0o17 int:00 }}");
  EXPECT_EQ(lex("{{ 1.x }}"), "{{ int:1 operator:. name:x }}");
  EXPECT_EQ(lex("{{ a.0.1 }}"), "{{ name:a operator:. int:0 operator:. int:1 }}");
  EXPECT_EQ(lex("{{ 1e }}"), "{{ int:1 name:e }}");
}

TEST(JinjaLexer, SplitsOperators) {
  EXPECT_EQ(lex("{{a//b**c!=d<=e}}"),
            "{{ name:a operator:// name:b operator:** name:c operator:!= name:d operator:<= "
            "name:e }}");
  EXPECT_EQ(lex("{{ a ! b }}"), "line 1: unexpected character '!'");
  EXPECT_EQ(lex("{{ a § b }}"), "line 1: unexpected character '§'");
}

TEST(JinjaLexer, DecodesStrings) {
  EXPECT_EQ(lex(R"({{ 'a\n\t\\\'\x41\u00e9\U0001F642\101' }})"), "{{ string:a\n\t\\'Aé🙂A }}");
  EXPECT_EQ(lex(R"({{ "keeps \q and \
joins" }})"),
            "{{ string:keeps \\q and joins }}");
  EXPECT_EQ(lex("{{ '\\ud800' }}"), "line 1: an escape in a string is not a character: U+D800");
  EXPECT_EQ(lex("{{ '\\x4' }}"), "line 1: an escape in a string has too few hex digits");
  EXPECT_EQ(lex("{{ '\\N{DASH}' }}"),
            "line 1: named characters (\\N{...}) in strings are not supported");
  EXPECT_EQ(lex("\n{{ 'open"), "line 2: a string is not closed");
}

TEST(JinjaLexer, NamesMayBeOfAnyScript) {
  EXPECT_EQ(lex("{{ größe 名_1 }}"), "{{ name:größe name:名_1 }}");
}

TEST(JinjaLexer, ClosesOnlyOutsideBrackets) {
  EXPECT_EQ(lex("{{ {'a':{}} }}"),
            "{{ operator:{ string:a operator:: operator:{ operator:} operator:} }}");
  EXPECT_EQ(lex("{{ [1 }}"), "line 1: unexpected '}', expected ']'");
  EXPECT_EQ(lex("{{ ) }}"), "line 1: unexpected ')'");
}

TEST(JinjaLexer, WhiteSpaceRules) {
  EXPECT_EQ(lex("a\n  {% x %}\nb"), "data:a\n {% name:x %} data:b");
  EXPECT_EQ(lex("a  {% x %}\nb"), "data:a   {% name:x %} data:b");
  EXPECT_EQ(lex("a\n  {{ x }}\nb"), "data:a\n   {{ name:x }} data:\nb");
  EXPECT_EQ(lex("a \n {%- x -%} \n b"), "data:a {% name:x %} data:b");
  EXPECT_EQ(lex("a\n {%+ x +%}\nb"), "data:a\n  {% name:x %} data:\nb");
  EXPECT_EQ(lex("{% x %}\n  {% y %}"), "{% name:x %} {% name:y %}");
  EXPECT_EQ(lex("{{ x }}  {% y %}"), "{{ name:x }} data:   {% name:y %}");
  EXPECT_EQ(lex("{{-1-}}"), "{{ int:1 }}");
}

TEST(JinjaLexer, CountsLines) {
  const Result<std::vector<Token>> tokens = tokenize("a\n{# c\nc #}\n{{\n'x\ny'\n+ z }}");
  ASSERT_TRUE(tokens.is_ok());
  EXPECT_EQ((*tokens)[1].line, 4);  // {{
  EXPECT_EQ((*tokens)[2].line, 5);  // the string
  EXPECT_EQ((*tokens)[3].line, 7);  // +
}

TEST(JinjaLexer, RawIsCopied) {
  EXPECT_EQ(lex("{% raw %}{{ a }}{% endraw %}"), "data:{{ a }}");
  EXPECT_EQ(lex("{% raw %} {% end %}{%endraw%}"), "data: {% end %}");
  EXPECT_EQ(lex("\n{% raw %}x"), "line 2: a raw block is not closed, add '{% endraw %}'");
}

}  // namespace
}  // namespace motley::jinja
