// Methods of strings, lists, dicts and numbers. Expected values: Jinja2 3.1.
#include <gtest/gtest.h>

#include <vector>

#include "text/jinja_test_util.h"

namespace motley::jinja {
namespace {

TEST(JinjaMethods, Search) {
  expect_expressions(std::vector<ExpressionCase>{
      {"s.startswith('He')", "True"},
      {"s.startswith(('x', 'H'))", "True"},
      {"s.startswith('lo', 3)", "True"},
      {"s.startswith('lo', 3, 4)", "False"},
      {"s.endswith('ld')", "True"},
      {"s.endswith('World', -5)", "True"},
      {"s.startswith(1)", "error"},
      {"s.find('o')", "4"},
      {"s.find('o', 5)", "8"},
      {"s.find('zz')", "-1"},
      {"s.rfind('o')", "8"},
      {"u.find('漢')", "9"},
      {"u.find('')", "0"},
      {"s.index('W')", "7"},
      {"s.index('zz')", "error"},
      {"s.rindex('l')", "10"},
      {"s.count('l')", "3"},
      {"'aaaa'.count('aa')", "2"},
      {"'abc'.count('')", "4"},
      {"s.find('o', -3)", "-1"},
      {"s.find('', 99)", "-1"},
  });
}

TEST(JinjaMethods, Splitting) {
  expect_expressions(std::vector<ExpressionCase>{
      {"w.split()", "['one', 'two', 'three', 'four']"},
      {"w.split(' ')", R"(['one', 'two', '', 'three\nfour'])"},
      {"w.split(none, 1)", R"(['one', 'two  three\nfour'])"},
      {"w.split(' ', 1)", R"(['one', 'two  three\nfour'])"},
      {"w.rsplit(' ', 1)", R"(['one two ', 'three\nfour'])"},
      {"w.rsplit(none, 1)", "['one two  three', 'four']"},
      {"w.rsplit()", "['one', 'two', 'three', 'four']"},
      {"''.split()", "[]"},
      {"''.split(',')", "['']"},
      {"'a,b,,c'.split(',')", "['a', 'b', '', 'c']"},
      {"'a,b'.split('')", "error"},
      {"'a--b--c'.split('--', maxsplit=1)", "['a', 'b--c']"},
      {R"('a\nb\r\nc\rd\x0be\u2028f\n'.splitlines())", "['a', 'b', 'c', 'd', 'e', 'f']"},
      {R"('a\nb\r\n'.splitlines(true))", R"(['a\n', 'b\r\n'])"},
      {"''.splitlines()", "[]"},
      {"'a=b=c'.partition('=')", "('a', '=', 'b=c')"},
      {"'a=b=c'.rpartition('=')", "('a=b', '=', 'c')"},
      {"'abc'.partition('=')", "('abc', '', '')"},
      {"'abc'.rpartition('=')", "('', '', 'abc')"},
      {"'a'.partition('')", "error"},
      {"t.split()", "['padded', 'text']"},
      {"'</think>x</think>y'.split('</think>')[-1]", "y"},
  });
}

TEST(JinjaMethods, Making) {
  expect_expressions(std::vector<ExpressionCase>{
      {"s.upper()", "HELLO, WORLD"},
      {"s.lower()", "hello, world"},
      {"'hello world'.title()", "Hello World"},
      {R"("they're bill's".title())", "They'Re Bill'S"},
      {"'hELLO'.capitalize()", "Hello"},
      {"'ǆ'.title()", "ǅ"},
      {"'aB'.swapcase()", "Ab"},
      {"'Straße'.casefold()", "strasse"},
      {"t.strip()", "padded\ttext"},
      {"t.lstrip()", "padded\ttext\n"},
      {"t.rstrip()", "  padded\ttext"},
      {R"('\n\nx\n'.strip('\n'))", "x"},
      {"'xyaxy'.strip('yx')", "a"},
      {"'xyaxy'.lstrip('x')", "yaxy"},
      {"'xyaxy'.rstrip('y')", "xyax"},
      {R"('\u3000x\u00a0'.strip())", "x"},
      {"s.replace('o', '0')", "Hell0, W0rld"},
      {"s.replace('o', '0', 1)", "Hell0, World"},
      {"'aaa'.replace('a', 'aa')", "aaaaaa"},
      {"'ab'.replace('', '-')", "-a-b-"},
      {"'ab'.replace('', '-', 2)", "-a-b"},
      {"'ab'.center(5)", "  ab "},
      {"'ab'.center(5, '*')", "**ab*"},
      {"'abc'.center(6, '*')", "*abc**"},
      {"'ab'.ljust(4, '.')", "ab.."},
      {"'ab'.rjust(4)", "  ab"},
      {"'ab'.ljust(4, 'xx')", "error"},
      {"'42'.zfill(5)", "00042"},
      {"'-42'.zfill(5)", "-0042"},
      {R"('a\tb'.expandtabs(4))", "a   b"},
      {"', '.join(k)", "b, a, C, a"},
      {"'-'.join('abc')", "a-b-c"},
      {"','.join([1])", "error"},
      {"''.join([])", ""},
      {"'prefix-x'.removeprefix('prefix-')", "x"},
      {"'x.txt'.removesuffix('.txt')", "x"},
      {"'{} {}'.format(1, 'a')", "1 a"},
      {"'{1}{0}'.format(1, 2)", "21"},
      {"'{a}/{b[0]}/{c.name}'.format(a=1, b=l, c=r[0])", "1/3/Ann"},
      {"'{:>5}|{:<5}|{:^5}|{:*^7}'.format('a', 'b', 'c', 'd')", "    a|b    |  c  |***d***"},
      {"'{:05d}|{:+.2f}|{:,}|{:x}|{:#x}|{:%}|{:e}'.format(42, 2.5, 1234567, 255, 255, 0.5, 1500.0)",
       "00042|+2.50|1,234,567|ff|0xff|50.000000%|1.500000e+03"},
      {"'{{}}'.format()", "{}"},
      {"'{!r}'.format('a')", "'a'"},
      {"'{'.format(1)", "error"},
      {"'{}'.format()", "error"},
      {"'{x}'.format()", "error"},
      {"'{:d}'.format('a')", "error"},
      {"'{:.3}'.format('abcdef')", "abc"},
      {"'{:.3}'.format(2.0)", "2.0"},
  });
}

TEST(JinjaMethods, Classes) {
  expect_expressions(std::vector<ExpressionCase>{
      {"'12'.isdigit()", "True"},
      {"'²'.isdigit()", "True"},
      {"'²'.isdecimal()", "False"},
      {"'½'.isnumeric()", "True"},
      {"'é'.isalpha()", "True"},
      {"'a1'.isalnum()", "True"},
      {R"(' \t'.isspace())", "True"},
      {"''.isspace()", "False"},
      {"'AB1'.isupper()", "True"},
      {"'ab1'.islower()", "True"},
      {"'12'.isupper()", "False"},
      {"'Hello World'.istitle()", "True"},
      {"'Hello world'.istitle()", "False"},
      {"'a_1'.isidentifier()", "True"},
      {"'1a'.isidentifier()", "False"},
      {R"('a\n'.isprintable())", "False"},
      {"''.isprintable()", "True"},
      {"'é'.isascii()", "False"},
  });
}

TEST(JinjaMethods, Containers) {
  expect_expressions(std::vector<ExpressionCase>{
      {"d.get('a')", "1"},
      {"d.get('zz')", "None"},
      {"d.get('zz', 5)", "5"},
      {"d.get([1])", "error"},
      {"d.get()", "error"},
      {"d.keys()|list", "['a', 'b', 'items', 'c']"},
      {"d.values()|list", "[1, 'two', [1], None]"},
      {"d.items()|list", "[('a', 1), ('b', 'two'), ('items', [1]), ('c', None)]"},
      {"d.copy()", "{'a': 1, 'b': 'two', 'items': [1], 'c': None}"},
      {"l.count(1)", "1"},
      {"l.index(2)", "2"},
      {"l.index(9)", "error"},
      {"l.copy()", "[3, 1, 2]"},
      {"l.append(1)", "error"},
      {"d.update({})", "error"},
      {"l.append is defined", "False"},
      {"(1, 2).index(2)", "1"},
      {"n.bit_length()", "3"},
      {"f.is_integer()", "False"},
      {"s.nosuch", ""},
      {"s.nosuch()", "error"},
      {"s.strip(chars='x')", "error"},
      {"s.upper(1)", "error"},
      {"dict(a=1, b=2)", "{'a': 1, 'b': 2}"},
      {"dict([['a', 1], ['b', 2]])", "{'a': 1, 'b': 2}"},
      {"dict({'a': 1}, a=2)", "{'a': 2}"},
      {"dict(5)", "error"},
      {"namespace(a=1).a", "1"},
      {"namespace(a=1).b", ""},
      {"range(3)|list", "[0, 1, 2]"},
      {"range(3, 0, -1)|list", "[3, 2, 1]"},
      {"range(0)|list", "[]"},
      {"range(1, 2, 0)", "error"},
      {"range('a')", "error"},
      {"cycler('a', 'b').next()", "a"},
      {"joiner(',')()", ""},
      {"raise_exception('no')", "error"},
      {"strftime_now('%Y-%m-%d %H:%M:%S %j %A')", "2024-01-02 03:04:05 002 Tuesday"},
  });
}

}  // namespace
}  // namespace motley::jinja
