// Each limit of the sandbox is refused with one line, quickly.
#include <gtest/gtest.h>

#include <chrono>

#include "text/jinja_test_util.h"

namespace motley::jinja {
namespace {

std::string repeat(std::string_view text, int count) {
  std::string out;
  for (int i = 0; i < count; ++i) out += text;
  return out;
}

JinjaLimits small() {
  JinjaLimits limits;
  limits.max_steps = 20'000;
  limits.max_output_bytes = 1'000;
  limits.max_string_bytes = 10'000;
  limits.max_value_bytes = 1'000'000;
  limits.max_range_items = 500;
  limits.max_nesting = 50;
  limits.max_call_depth = 20;
  limits.max_source_bytes = 20'000;
  return limits;
}

void expect_refused(std::string_view source, std::string_view why) {
  const std::string output = render(source, "{}", small());
  EXPECT_EQ(output.substr(0, 12), "error: line ") << source;
  EXPECT_NE(output.find(why), std::string::npos) << source << "\n" << output;
  EXPECT_EQ(output.find('\n'), std::string::npos) << output;
}

TEST(JinjaLimits, Steps) {
  expect_refused("{% for a in range(500) %}{% for b in range(500) %}{% endfor %}{% endfor %}",
                 "more than 20000 steps");
  expect_refused(
      "{% set s = 'ab' * 4000 %}{% for a in range(500) %}{% if 'x' in s %}{% endif %}"
      "{% endfor %}",
      "steps");
  expect_refused("{% for x in range(400) %}{% set l = range(400)|sort %}{% endfor %}", "steps");
  expect_refused(
      "{% set d = range(400)|list %}{% for x in d %}{{ '' if x in d[::-1] }}{% endfor %}", "steps");
}

TEST(JinjaLimits, Output) {
  expect_refused("{% for a in range(400) %}abcdef{% endfor %}", "output is over the limit");
  expect_refused("{{ 'a' * 2000 }}", "output is over the limit");
}

TEST(JinjaLimits, Strings) {
  expect_refused("{{ 'ab' * 9000000000000000000 }}", "over the limit of 10000 bytes");
  expect_refused("{{ 9000000000000000000 * 'ab' }}", "over the limit of 10000 bytes");
  expect_refused("{{ ('a' * 9000) ~ ('b' * 9000) }}", "over the limit");
  expect_refused("{{ ('a' * 9000) + ('b' * 9000) }}", "over the limit");
  expect_refused("{{ ('a' * 900).replace('a', 'b' * 100) }}", "over the limit");
  expect_refused("{{ ('b' * 900).join(range(100)|map('string')) }}", "over the limit");
  expect_refused("{{ 'a'.center(1000000000000) }}", "over the limit");
  expect_refused("{{ 'a'.zfill(1000000000000) }}", "over the limit");
  expect_refused("{{ '\t'.expandtabs(1000000000000) }}", "over the limit");
  expect_refused("{{ '%1000000d' % 1 }}", "over the limit");
  expect_refused("{{ '%10000000000d' % 1 }}", "too large a width");
  expect_refused("{{ '%.1000000f' % 1.0 }}", "precision");
  expect_refused("{{ '{:1000000}'.format(1) }}", "over the limit");
  expect_refused("{{ 'a\na'|indent(1000000000) }}", "over the limit");
  expect_refused("{{ [1]|tojson(indent=1000000000) }}", "over the limit");
  expect_refused("{{ range(400)|join('b' * 100) }}", "over the limit");
}

TEST(JinjaLimits, Lists) {
  expect_refused("{{ range(501) }}", "a range of 501 items is over the limit of 500");
  expect_refused("{{ range(-9223372036854775807, 9223372036854775807) }}", "a range of");
  expect_refused("{{ range(9223372036854775807, -9223372036854775807, -1) }}", "a range of");
  expect_refused("{{ [1, 2] * 9000000000000000000 }}", "too long");
  expect_refused("{{ [1]|batch(1000000000000, 0)|list }}", "too long");
  expect_refused("{{ [1]|slice(1000000000000)|list }}", "too long");
}

TEST(JinjaLimits, Values) {
  JinjaLimits limits = small();
  limits.max_steps = 1'000'000;
  EXPECT_EQ(render("{% set ns = namespace(s='') %}{% for a in range(400) %}"
                   "{% set ns.s = ns.s ~ 'aaaaaaaaaaaaaaaaaaaaaaa' %}{% endfor %}",
                   "{}", limits),
            "error: line 1: the template makes more than 1000000 bytes of values");
  // Doubling: refused by the size of one string long before memory matters.
  expect_refused(
      "{% set ns = namespace(s='a') %}{% for a in range(100) %}"
      "{% set ns.s = ns.s + ns.s %}{% endfor %}",
      "over the limit");
}

TEST(JinjaLimits, Depth) {
  expect_refused("{% macro m() %}{{ m() }}{% endmacro %}{{ m() }}",
                 "calls are nested more than 20 deep");
  expect_refused(
      "{% set ns = namespace(l=[]) %}{% for a in range(100) %}{% set ns.l = [ns.l] %}"
      "{% endfor %}{{ ns.l }}",
      "values are nested more than 50 deep");
  expect_refused("{{ " + repeat("(", 100) + "1" + repeat(")", 100) + " }}", "nested more than 50");
  expect_refused("{{ " + repeat("[", 100) + "1" + repeat("]", 100) + " }}", "nested more than 50");
  expect_refused("{{ " + repeat("not ", 100) + "1 }}", "nested more than 50");
  expect_refused("{{ " + repeat("-", 100) + "1 }}", "nested more than 50");
  expect_refused("{{ 1" + repeat(" + 1", 100) + " }}", "nested more than 50");
  expect_refused("{{ x" + repeat(".a", 100) + " }}", "nested more than 50");
  expect_refused("{{ x" + repeat("|upper", 100) + " }}", "nested more than 50");
  expect_refused("{{ 1" + repeat(" if 1 else 1", 100) + " }}", "nested more than 50");
  expect_refused("{% set " + repeat("(", 100) + "x" + repeat(")", 100) + " = 1 %}",
                 "nested more than 50");
  expect_refused(repeat("{% if 1 %}", 100) + repeat("{% endif %}", 100), "nested more than 50");
}

TEST(JinjaLimits, LongChainsThatAreFlatAreFine) {
  EXPECT_EQ(render("{{ ''" + repeat(" ~ 'a'", 100) + " }}", "{}", small()), repeat("a", 100));
  EXPECT_EQ(
      render("{% if 0 %}" + repeat("{% elif 0 %}", 100) + "{% else %}x{% endif %}", "{}", small()),
      "x");
}

TEST(JinjaLimits, Source) {
  EXPECT_EQ(render(std::string(20'001, 'a'), "{}", small()),
            "error: a template of 20001 bytes is over the limit of 20000");
}

TEST(JinjaLimits, Data) {
  EXPECT_EQ(render("{{ x }}", "{\"x\": " + repeat("[", 60) + repeat("]", 60) + "}", small()),
            "error: line 1: the data is nested more than 50 deep");
  EXPECT_EQ(render("{{ x }}", "{\"x\": 18446744073709551615}"),
            "error: line 1: the number 18446744073709551615 in the data does not fit 64 bits");
  EXPECT_EQ(render("{{ x }}", "[1]"), "error: line 1: the template's data must be a JSON object");
}

TEST(JinjaLimits, ErrorsStayOnOneLine) {
  EXPECT_EQ(render("{{ raise_exception('a\nb\u2028c' ~ 'd' * 1000) }}"),
            "error: line 1: the template refuses: a b c" + std::string(373, 'd') + "...");
  EXPECT_EQ(render("{{ '{:\n}'.format(1) }}").find('\n'), std::string::npos);
  EXPECT_EQ(render("{{ {}['\n'].x }}").find('\n'), std::string::npos);
  EXPECT_EQ(render("{{ \x01 }}"), "error: line 1: unexpected character ' '");
}

// With the limits of the product the worst templates still end soon.
TEST(JinjaLimits, DefaultsEndSoon) {
  const auto start = std::chrono::steady_clock::now();
  for (const std::string_view source : {
           "{% for a in range(100000) %}{% for b in range(100000) %}{% endfor %}{% endfor %}",
           "{% set s = 'ab' * 4000000 %}{% for a in range(100000) %}{% if 'x' in s %}{% endif %}"
           "{% endfor %}",
           "{% macro m(n) %}{{ m(n + 1) }}{{ m(n + 1) }}{% endmacro %}{{ m(0) }}",
           "{% set d = range(100000)|list %}{{ d|unique|list|length }}",
       }) {
    EXPECT_EQ(render(source).substr(0, 12), "error: line ") << source;
  }
  EXPECT_LT(std::chrono::steady_clock::now() - start, std::chrono::seconds(60));
}

}  // namespace
}  // namespace motley::jinja
