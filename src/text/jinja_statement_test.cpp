// Statements: blocks, loops, macros, assignment. Expected values: Jinja2 3.1.
#include <gtest/gtest.h>

#include <vector>

#include "text/jinja_test_util.h"

namespace motley::jinja {
namespace {

void expect_templates(std::span<const ExpressionCase> cases) {
  for (const ExpressionCase& test : cases) {
    const std::string output = render(test.expression, kSampleContext);
    if (test.output == "error") {
      EXPECT_EQ(output.substr(0, 12), "error: line ") << test.expression;
    } else {
      EXPECT_EQ(output, test.output) << test.expression;
    }
  }
}

TEST(JinjaStatements, If) {
  expect_templates(std::vector<ExpressionCase>{
      {"{% if n %}a{% endif %}", "a"},
      {"{% if z %}a{% endif %}", ""},
      {"{% if z %}a{% else %}b{% endif %}", "b"},
      {"{% if z %}a{% elif n %}b{% else %}c{% endif %}", "b"},
      {"{% if z %}a{% elif x %}b{% else %}c{% endif %}", "c"},
      {"{% if n: %}a{% endif %}", "a"},
      {"{% if n, z %}tuple{% endif %}", "tuple"},
      {"{% if missing.more %}a{% endif %}", "error"},
      {"{% if 1 if c else 0 %}a{% endif %}", "error"},
      {"{% if n %}{% if z %}{% else %}in{% endif %}{% endif %}", "in"},
      {"{% if %}a{% endif %}", "error"},
      {"{% if n %}a", "error"},
      {"{% endif %}", "error"},
      {"{% if n %}{% else %}{% elif n %}{% endif %}", "error"},
  });
}

TEST(JinjaStatements, For) {
  expect_templates(std::vector<ExpressionCase>{
      {"{% for a in l %}{{ a }},{% endfor %}", "3,1,2,"},
      {"{% for a in l %}{{ a }}{% else %}none{% endfor %}", "312"},
      {"{% for a in x %}{{ a }}{% else %}none{% endfor %}", "none"},
      {"{% for a in d %}{{ a }}{% endfor %}", "abitemsc"},
      {"{% for a in s %}{{ a }}-{% endfor %}", "H-e-l-l-o-,- -W-o-r-l-d-"},
      {"{% for a in n %}{% endfor %}", "error"},
      {"{% for a in none %}{% endfor %}", "error"},
      {"{% for a in missing %}{% else %}none{% endfor %}", "none"},
      {"{% for a, b in d.items() %}{{ a }}={{ b }};{% endfor %}", "a=1;b=two;items=[1];c=None;"},
      {"{% for a, b in l %}{% endfor %}", "error"},
      {"{% for a in l if a > 1 %}{{ loop.index }}{{ a }}{% endfor %}", "1322"},
      {"{% for a in l if a > 1 if b %}{% endfor %}", ""},
      {"{% for a in l if missing %}x{% else %}y{% endfor %}", "y"},
      {"{% for a in (1, 2), 3 %}{{ a }};{% endfor %}", "(1, 2);3;"},
      {"{% for a in l if a == 1 or a == 3 %}{{ a }}{% endfor %}", "31"},
      {"{% for a in l|sort|reverse %}{{ a }}{% endfor %}", "321"},
      {"{% for a in l %}{{ a }}{% endfor %}{{ a }}", "312"},
      {"{% for n in l %}{{ n }}{% endfor %}{{ n }}", "3127"},
      {"{% for a in l %}{% for b in l %}{{ loop.index }}{% endfor %}{{ loop.index }} {% endfor %}",
       "1231 1232 1233 "},
      {"{% for a in l %}{{ loop.nosuch }}{% endfor %}", ""},
      {"{% for a in l %}{{ loop.cycle() }}{% endfor %}", "error"},
      {"{% for a in [1, 1, 2] %}{{ loop.changed(a) }}{% endfor %}", "TrueFalseTrue"},
      {"{% for a in [1, 1, 2] %}{{ loop.changed(a, loop.index) }}{% endfor %}", "TrueTrueTrue"},
      {"{% for a in l %}{{ loop.previtem|default('-') }}{{ loop.nextitem|default('-') }} {% endfor "
       "%}",
       "-1 32 1- "},
      {"{% for a in l %}{{ loop.length - loop.revindex }}{% endfor %}", "012"},
      {"{% for loop in l %}{% endfor %}", "error"},
      {"{% for 1 in l %}{% endfor %}", "error"},
      {"{% for a in l %}{% break %}{% else %}none{% endfor %}", "none"},
      {"{% for a in l %}{% if loop.first %}{% continue %}{% endif %}{{ a }}{% endfor %}", "12"},
      {"{% for a in l %}{% set m = 1 %}{% with %}{% break %}{% endwith %}{% endfor %}ok", "ok"},
      {"{% continue %}", "error"},
      {"{% for a in l|map('string') %}{{ loop.length }}{% endfor %}", "333"},
      {"{% set it = l|map('string') %}{% for a in it %}{{ a }}{% endfor %}{% for a in it %}again{% "
       "else %}used{% endfor %}",
       "312used"},
      {"{% for a.b in l %}{% endfor %}", "error"},
      {"{% for a in l %}{{ a }}", "error"},
  });
}

TEST(JinjaStatements, Set) {
  expect_templates(std::vector<ExpressionCase>{
      {"{% set a = 1 %}{{ a }}", "1"},
      {"{% set a, b = 1, 2 %}{{ b }}{{ a }}", "21"},
      {"{% set (a, b) = (1, 2) %}{{ a }}", "1"},
      {"{% set a = 1, %}{{ a }}", "(1,)"},
      {"{% set a, b = 1 %}", "error"},
      {"{% set a, b = 'xy' %}{{ a }}", "x"},
      {"{% set n = n + 1 %}{{ n }}", "8"},
      {"{% set a %}x{{ n }}{% endset %}{{ a }}", "x7"},
      {"{% set a | upper %}x{% endset %}{{ a }}", "X"},
      {"{% set a | replace('x', 'y') | upper %}x{% endset %}{{ a }}", "Y"},
      {"{% set a %}{% set b = 1 %}{% endset %}[{{ b }}]", "[True]"},
      {"{% set ns = namespace(a=1) %}{% set ns.a = 2 %}{% set ns.b = 3 %}{{ ns.a }}{{ ns.b }}{{ "
       "ns.c }}",
       "23"},
      {"{% set ns = namespace({'a': 1}, b=2) %}{{ ns.a }}{{ ns.b }}{{ ns['a'] }}", "121"},
      {"{% set ns = namespace() %}{% for a in l %}{% set ns.t = (ns.t or 0) + a %}{% endfor %}{{ "
       "ns.t }}",
       "6"},
      {"{% set ns = namespace() %}{% set ns.a %}text{% endset %}{{ ns.a }}", "text"},
      {"{% set l.a = 1 %}", "error"},
      {"{% set missing.a = 1 %}", "error"},
      {"{% set none = 1 %}", "error"},
      {"{% set a = %}", "error"},
      {"{% set a %}x", "error"},
      {"{% set 5 = 1 %}", "error"},
      {"{% set a.b.c = 1 %}", "error"},
      {"{% if true %}{% set a = 1 %}{% endif %}{{ a }}", "1"},
      {"{% for q in l %}{% set a = 1 %}{% endfor %}[{{ a }}]", "[]"},
      {"{% set a = 1 %}{% for q in l %}{{ a }}{% set a = a + q %}{{ a }} {% endfor %}",
       "14 12 13 "},
  });
}

TEST(JinjaStatements, Macros) {
  expect_templates(std::vector<ExpressionCase>{
      {"{% macro m() %}x{% endmacro %}{{ m() }}{{ m() }}", "xx"},
      {"{% macro m(a) %}[{{ a }}]{% endmacro %}{{ m(1) }}{{ m(a=2) }}{{ m() }}", "[1][2][]"},
      {"{% macro m(a, b=1) %}{{ a }}{{ b }}{% endmacro %}{{ m(0) }}{{ m(0, 2) }}{{ m(b=3, a=0) }}",
       "010203"},
      {"{% macro m(a, b=a) %}{{ b }}{% endmacro %}{{ m('x') }}", "x"},
      {"{% macro m(a=1, b) %}{% endmacro %}", "error"},
      {"{% macro m(a) %}{% endmacro %}{{ m(1, 2) }}", "error"},
      {"{% macro m(a) %}{% endmacro %}{{ m(b=2) }}", "error"},
      {"{% macro m(a) %}{% endmacro %}{{ m(1, a=2) }}", "error"},
      {"{% macro m() %}{{ varargs }}{% endmacro %}{{ m(1, 2) }}", "(1, 2)"},
      {"{% macro m() %}{{ kwargs }}{% endmacro %}{{ m(a=1) }}", "{'a': 1}"},
      {"{% macro m(a) %}{{ a is defined }}{% endmacro %}{{ m() }}{{ m(1) }}", "FalseTrue"},
      {"{% macro m() %}{{ n }}{% endmacro %}{{ m() }}", "7"},
      {"{% macro m() %}{% set n = 1 %}{{ n }}{% endmacro %}{{ m() }}{{ n }}", "17"},
      {"{% set v = 1 %}{% macro m() %}{{ v }}{% endmacro %}{% set v = 2 %}{{ m() }}", "2"},
      {"{% for a in l %}{% macro m() %}{{ a }}{% endmacro %}{{ m() }}{% endfor %}", "312"},
      {"{% for a in l %}{% macro m() %}x{% endmacro %}{% endfor %}{{ m() }}", "error"},
      {"{% macro a() %}{{ b() }}{% endmacro %}{% macro b() %}b{% endmacro %}{{ a() }}", "b"},
      {"{{ m() }}{% macro m() %}x{% endmacro %}", "error"},
      {"{% macro m() %}<b>{% endmacro %}{{ m()|upper }}{{ m()|length }}", "<B>3"},
      {"{% macro m(x) %}{{ x }}{% endmacro %}{{ l|map('string')|map('upper')|join }}{{ m(m(m(1))) "
       "}}",
       "3121"},
      {"{% macro m() %}{{ caller() }}{% endmacro %}{% call m() %}in{% endcall %}", "in"},
      {"{% macro m() %}{{ caller(1, b=2) }}{% endmacro %}{% call(a, b) m() %}{{ a }}{{ b }}{% "
       "endcall %}",
       "12"},
      {"{% macro m() %}x{% endmacro %}{% call m() %}in{% endcall %}", "error"},
      {"{% macro m() %}{{ caller() }}{% endmacro %}{{ m() }}", "error"},
      {"{% macro m() %}{{ caller is defined }}{% endmacro %}{{ m() }}{% call m() %}{% endcall %}",
       "FalseTrue"},
      {"{% call 5 %}{% endcall %}", "error"},
      {"{% macro m() %}{% for a in l %}{{ caller(a) }}{% endfor %}{% endmacro %}{% call(q) m() "
       "%}<{{ q }}{{ n }}>{% endcall %}",
       "<37><17><27>"},
      {"{% macro m(a,) %}{{ a }}{% endmacro %}{{ m(1,) }}", "error"},
      {"{% macro m(a a) %}{% endmacro %}", "error"},
      {"{{ n() }}", "error"},
      {"{{ 'x'() }}", "error"},
      {"{% set m = s.upper %}{{ m() }}", "HELLO, WORLD"},
      {"{{ m.name }}{% macro m() %}{% endmacro %}{{ m.name }}", "m"},
  });
}

TEST(JinjaStatements, WithFilterRaw) {
  expect_templates(std::vector<ExpressionCase>{
      {"{% with a = 1 %}{{ a }}{% endwith %}[{{ a }}]", "1[]"},
      {"{% with a = 1, b = 2 %}{{ a + b }}{% endwith %}", "3"},
      {"{% with %}{% set a = 1 %}{{ a }}{% endwith %}[{{ a }}]", "1[]"},
      {"{% with n = 1 %}{{ n }}{% endwith %}{{ n }}", "17"},
      {"{% with a, b = (1, 2) %}{{ b }}{% endwith %}", "2"},
      {"{% with n = n + 1, a = n %}{{ n }}{{ a }}{% endwith %}", "87"},
      {"{% with a %}{% endwith %}", "error"},
      {"{% filter upper %}a{{ s }}{% endfilter %}", "AHELLO, WORLD"},
      {"{% filter upper|replace('A', 'b') %}a{% endfilter %}", "b"},
      {"{% filter nosuch %}a{% endfilter %}", "error"},
      {"{% filter %}a{% endfilter %}", "error"},
      {"{% raw %}{{ x }}{% endraw %}", "{{ x }}"},
      {"{% raw %}{% raw %}{% endraw %}", "{% raw %}"},
      {"{% raw %}x", "error"},
      {"{# a #}b{# {{ c }} #}", "b"},
      {"a{% generation %}b{% endgeneration %}c", "abc"},
      {"{% generation %}", "error"},
      {"{% print n %}{% print n, s %}", "77Hello, World"},
      {"{% extends 'a' %}", "error"},
      {"{% import 'a' as b %}", "error"},
      {"{% include 'a' %}", "error"},
      {"{% nosuch %}", "error"},
      {"{% %}", "error"},
      {"{{ }}", "error"},
      {"{{ n", "error"},
      {"{% if n", "error"},
      {"{{ n }} }}", "7 }}"},
      {"{{ 'a }}", "error"},
  });
}

}  // namespace
}  // namespace motley::jinja
