// Operators, subscripts and printing as Python has them. Expected values: Jinja2 3.1.
#include <gtest/gtest.h>

#include <vector>

#include "text/jinja_test_util.h"

namespace motley::jinja {
namespace {

TEST(JinjaOperators, Arithmetic) {
  expect_expressions(std::vector<ExpressionCase>{
      {"1 + 2 * 3", "7"},   {"(1 + 2) * 3", "9"},  {"7 // 2", "3"},
      {"-7 // 2", "-4"},    {"7 // -2", "-4"},     {"7 % 3", "1"},
      {"-7 % 3", "2"},      {"7 % -3", "-2"},      {"7.5 // 2", "3.0"},
      {"-7.5 % 2", "0.5"},  {"6 / 3", "2.0"},      {"7 / 2", "3.5"},
      {"2 ** 10", "1024"},  {"2 ** -1", "0.5"},    {"2 ** 0.5", "1.4142135623730951"},
      {"-2 ** 2", "4"},     {"n - m - 1", "9"},    {"1 / 0", "error"},
      {"1 // 0", "error"},  {"1 % 0", "error"},    {"1.5 // 0.0", "error"},
      {"true + true", "2"}, {"true + 1.5", "2.5"}, {"'a' + 1", "error"},
      {"1 + 'a'", "error"}, {"none + 1", "error"}, {"missing + 1", "error"},
      {"-o", "error"},      {"+b", "1"},           {"-b", "-1"},
      {"-f", "-2.5"},       {"0 ** 0", "1"},       {"(0.0) ** -1", "error"},
  });
}

TEST(JinjaOperators, StringsAndLists) {
  expect_expressions(std::vector<ExpressionCase>{
      {"'a' + 'b'", "ab"},
      {"'a' 'b' 'c'", "abc"},
      {"'ab' * 3", "ababab"},
      {"3 * 'ab'", "ababab"},
      {"'ab' * 0", ""},
      {"'ab' * -1", ""},
      {"[1] * 2", "[1, 1]"},
      {"[1] + [2, 3]", "[1, 2, 3]"},
      {"(1,) + (2,)", "(1, 2)"},
      {"[1] + (2,)", "error"},
      {"1 ~ 2 ~ none ~ true ~ 2.0 ~ [1, 'a']", "12NoneTrue2.0[1, 'a']"},
      {"s ~ missing ~ e", "Hello, World"},
      {"'%s is %d' % ('x', 3)", "x is 3"},
      {"'%5.2f|%-6s|%06d|%+d|%x|%X|%o|%e|%g' % (f, 'ab', n, n, 255, 255, 8, 12345.678, 0.00001)",
       " 2.50|ab    |000007|+7|ff|FF|10|1.234568e+04|1e-05"},
      {"'%s' % [1, 2]", "[1, 2]"},
      {"'%s' % none", "None"},
      {"'%(a)s-%(b)s' % d", "1-two"},
      {"'%s' % missing", ""},
      {"'%d%%' % 5", "5%"},
      {"'%s %s' % ('one',)", "error"},
      {"'%d' % 'x'", "error"},
      {"'%s' % (1, 2)", "error"},
      {R"('%r' % "it's")", R"("it's")"},
      {"'abc' % 5", "error"},
      {"'abc' % []", "abc"},
      {"'%d' % 3.99", "3"},
      {"'%.3s' % 'abcdef'", "abc"},
  });
}

TEST(JinjaOperators, Comparison) {
  expect_expressions(std::vector<ExpressionCase>{
      {"1 < 2 < 3", "True"},
      {"1 < 3 < 2", "False"},
      {"1 == 1.0", "True"},
      {"1 == true", "True"},
      {"'a' < 'b'", "True"},
      {"'B' < 'a'", "True"},
      {"'é' > 'z'", "True"},
      {"[1, 2] < [1, 3]", "True"},
      {"[1] == (1,)", "False"},
      {"(1, 2) == (1, 2)", "True"},
      {"{'a': 1} == {'a': 1.0}", "True"},
      {"none == false", "False"},
      {"none == none", "True"},
      {"missing == other", "True"},
      {"missing == none", "False"},
      {"1 < 'a'", "error"},
      {"[1] < none", "error"},
      {"none < 1", "error"},
      {"'a' == 1", "False"},
      {"1 != '1'", "True"},
      {"9007199254740993 == 9007199254740992.0", "False"},
      {"9007199254740993 > 9007199254740992.0", "True"},
      {"l == l", "True"},
      {"range(3) == range(0, 3)", "True"},
      {"d.items() == d.items()", "True"},
  });
}

TEST(JinjaOperators, Membership) {
  expect_expressions(std::vector<ExpressionCase>{
      {"'ell' in s", "True"},
      {"'' in s", "True"},
      {"1 in l", "True"},
      {"1.0 in l", "True"},
      {"9 not in l", "True"},
      {"'a' in d", "True"},
      {"1 in d", "False"},
      {"'name' in r[0]", "True"},
      {"1 in s", "error"},
      {"'x' in none", "error"},
      {"'x' in missing", "False"},
      {"1 in range(3)", "True"},
      {"[1] in d", "error"},
      {"[1] in d.keys()", "error"},
      {"'a' in d.keys()", "True"},
      {"('a', 1) in d.items()", "True"},
  });
}

TEST(JinjaOperators, Logic) {
  expect_expressions(std::vector<ExpressionCase>{
      {"not 1", "False"},
      {"not ''", "True"},
      {"1 and 2", "2"},
      {"0 and 2", "0"},
      {"0 or 'x'", "x"},
      {"'' or none or 'last'", "last"},
      {"none and missing.crash", "None"},
      {"1 or missing.crash", "1"},
      {"'yes' if b else 'no'", "yes"},
      {"'yes' if c", ""},
      {"1 if c else 2 if o else 3", "3"},
      {"not b == c", "True"},
      {"not (b and c) or false", "True"},
      {"missing or 'default'", "default"},
  });
}

TEST(JinjaOperators, Subscripts) {
  expect_expressions(std::vector<ExpressionCase>{
      {"s[0]", "H"},
      {"s[-1]", "d"},
      {"s[99]", ""},
      {"u[1]", "n"},
      {"u[-1]", "🙂"},
      {"l[0]", "3"},
      {"l[-1]", "2"},
      {"l[3]", ""},
      {"l['0']", ""},
      {"d['a']", "1"},
      {"d.a", "1"},
      {"d['nothing']", ""},
      {"d['items']", "[1]"},
      {"d.nothing.more", "error"},
      {"q.x.y[1].z", "deep"},
      {"q['x'].y.0", "1"},
      {"missing.attribute", "error"},
      {"missing[0]", "error"},
      {"none.attribute", ""},
      {"none[0]", ""},
      {"r[0].tags.0", "x"},
      {"(1, 2)[1]", "2"},
      {"5[0]", ""},
      {"l[1, 2]", ""},
  });
}

TEST(JinjaOperators, Slices) {
  expect_expressions(std::vector<ExpressionCase>{
      {"l[:2]", "[3, 1]"},
      {"l[1:]", "[1, 2]"},
      {"l[-2:]", "[1, 2]"},
      {"l[::-1]", "[2, 1, 3]"},
      {"l[::2]", "[3, 2]"},
      {"l[5:]", "[]"},
      {"l[2:0:-1]", "[2, 1]"},
      {"l[:]", "[3, 1, 2]"},
      {"s[1:4]", "ell"},
      {"s[-5:]", "World"},
      {"s[::-1]", "dlroW ,olleH"},
      {"u[2:5]", "ï ß"},
      {"u[::-1]", "🙂 字漢 ΣΑ ß ïnÜ"},
      {"u[::3]", "Ü Α漢🙂"},
      {"(1, 2, 3)[1:]", "(2, 3)"},
      {"range(10)[2:5]", "range(2, 5)"},
      {"range(10)[::3]", "range(0, 10, 3)"},
      {"range(10)[::-1]|list", "[9, 8, 7, 6, 5, 4, 3, 2, 1, 0]"},
      {"range(10)[5:2]", "range(5, 2)"},
      {"l[::0]", "error"},
      {"l['a':]", "error"},
      {"none[1:]", "error"},
      {"d[1:]", "error"},
      {"missing[1:]", "error"},
      {"l[none:none:none]", "[3, 1, 2]"},
      {"s[-100:100]", "Hello, World"},
      {"l[true:]", "[1, 2]"},
  });
}

TEST(JinjaOperators, Printing) {
  expect_expressions(std::vector<ExpressionCase>{
      {"1.0", "1.0"},
      {"0.1", "0.1"},
      {"1e16", "1e+16"},
      {"1e15", "1000000000000000.0"},
      {"123456789.123", "123456789.123"},
      {"1e-5", "1e-05"},
      {"0.0001", "0.0001"},
      {"-0.0", "-0.0"},
      {"1e22", "1e+22"},
      {"1.5e300", "1.5e+300"},
      {"7 / 3", "2.3333333333333335"},
      {"[1, 2.0, 'a', none, true, [], {}]", "[1, 2.0, 'a', None, True, [], {}]"},
      {"{'a': 1, 'b': [1], 3: none}", "{'a': 1, 'b': [1], 3: None}"},
      {"(1,)", "(1,)"},
      {"()", "()"},
      {R"("it's")", "it's"},
      {R"(["it's", 'say "hi"', "both ' and \""])", R"(["it's", 'say "hi"', 'both \' and "'])"},
      {R"(['tab\t', 'nl\n', 'bs\\', 'nul\0', '\x7f', 'é', '\u200b', '\u2028', '🙂', '\U000e0001'])",
       R"(['tab\t', 'nl\n', 'bs\\', 'nul\x00', )"
       R"('\x7f', 'é', '\u200b', '\u2028', '🙂', '\U000e0001'])"},
      {"d.keys()", "dict_keys(['a', 'b', 'items', 'c'])"},
      {"d.values()", "dict_values([1, 'two', [1], None])"},
      {"d.items()", "dict_items([('a', 1), ('b', 'two'), ('items', [1]), ('c', None)])"},
      {"range(3)", "range(0, 3)"},
      {"range(1, 9, 2)", "range(1, 9, 2)"},
      {"none", "None"},
      {"true", "True"},
      {"[missing]", "[Undefined]"},
      {"html|escape", "&lt;a href=&#34;x&#34;&gt;&amp;&#39;&lt;/a&gt;"},
      {"[html|escape]", "[Markup('&lt;a href=&#34;x&#34;&gt;&amp;&#39;&lt;/a&gt;')]"},
  });
}

}  // namespace
}  // namespace motley::jinja
