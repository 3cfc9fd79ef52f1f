// Formatting with % and str.format. Expected values: Jinja2 3.1.
#include <gtest/gtest.h>

#include <vector>

#include "text/jinja_test_util.h"

namespace motley::jinja {
namespace {

TEST(JinjaFormat, PercentIntegers) {
  expect_expressions(std::vector<ExpressionCase>{
      {"'%d' % 5", "5"},
      {"'%5d|' % 5", "    5|"},
      {"'%-5d|' % 5", "5    |"},
      {"'%05d' % 5", "00005"},
      {"'%05d' % -5", "-0005"},
      {"'%+d' % 5", "+5"},
      {"'% d' % 5", " 5"},
      {"'%+05d' % 5", "+0005"},
      {"'%-05d|' % 5", "5    |"},
      {"'%i' % 5", "5"},
      {"'%u' % 5", "5"},
      {"'%x %X %o' % (255, 255, 8)", "ff FF 10"},
      {"'%#x %#X %#o' % (255, 255, 8)", "0xff 0XFF 0o10"},
      {"'%#010x' % 255", "0x000000ff"},
      {"'%x' % -255", "-ff"},
      {"'%d' % true", "1"},
      {"'%d' % 2.9", "2"},
      {"'%d' % -2.9", "-2"},
      {"'%x' % 2.5", "error"},
      {"'%d' % none", "error"},
      {"'%d' % '5'", "error"},
      {"'%d' % missing", "error"},
      {"'%d' % [1]", "error"},
  });
}

TEST(JinjaFormat, PercentReals) {
  expect_expressions(std::vector<ExpressionCase>{
      {"'%f' % 1", "1.000000"},
      {"'%f' % 2.5", "2.500000"},
      {"'%.0f' % 2.5", "2"},
      {"'%.0f' % 3.5", "4"},
      {"'%.2f' % 2.675", "2.67"},
      {"'%10.3f|' % 3.14159", "     3.142|"},
      {"'%-10.3f|' % 3.14159", "3.142     |"},
      {"'%010.3f' % -3.14159", "-00003.142"},
      {"'%+.1f' % 2.25", "+2.2"},
      {"'%e' % 12345.678", "1.234568e+04"},
      {"'%.1E' % 12345.678", "1.2E+04"},
      {"'%g' % 1000000.0", "1e+06"},
      {"'%g' % 100000.0", "100000"},
      {"'%G' % 0.00001", "1E-05"},
      {"'%.3g' % 1234.5", "1.23e+03"},
      {"'%f' % ('inf'|float)", "inf"},
      {"'%5.1f|' % ('nan'|float)", "  nan|"},
      {"'%f' % 'x'", "error"},
      {"'%.1f%%' % 99.5", "99.5%"},
  });
}

TEST(JinjaFormat, PercentText) {
  expect_expressions(std::vector<ExpressionCase>{
      {"'%s' % 'a'", "a"},
      {"'%5s|' % 'a'", "    a|"},
      {"'%-5s|' % 'a'", "a    |"},
      {"'%05s|' % 'a'", "    a|"},
      {"'%.2s' % 'abc'", "ab"},
      {"'%5.1s|' % 'éa'", "    é|"},
      {"'%r' % 'a'", "'a'"},
      {"'%r %r' % (none, 1.0)", "None 1.0"},
      {"'%s %s %s' % (true, none, [1, 'a'])", "True None [1, 'a']"},
      {"'%s' % {'a': 1}", "{'a': 1}"},
      {"'%s' % ()", "error"},
      {"'%s' % ((1, 2),)", "(1, 2)"},
      {"'%(x)s %(y)d' % {'x': 'a', 'y': 2}", "a 2"},
      {"'%(x)s' % {'y': 2}", "error"},
      {"'%(x)s' % 5", "error"},
      {"'%(x' % {'x': 1}", "error"},
      {"'%%' % ()", "%"},
      {"'%' % ()", "error"},
      {"'%s %s' % 'a'", "error"},
      {"'%s' % ('a', 'b')", "error"},
      {"'%y' % 1", "error"},
      {"'a' % 1", "error"},
      {"'a' % {'a': 1}", "a"},
      {"'a' % 'b'", "error"},
      {"'%5' % 1", "error"},
  });
}

TEST(JinjaFormat, BraceFields) {
  expect_expressions(std::vector<ExpressionCase>{
      {"'{}{}'.format(1, 2)", "12"},
      {"'{0}{0}'.format('a')", "aa"},
      {"'{1}'.format(1)", "error"},
      {"'{a}'.format(a=[1])", "[1]"},
      {"'{0[a]}'.format(d)", "1"},
      {"'{0.a}'.format(d)", "1"},
      {"'{0[0]}'.format(l)", "3"},
      {"'{0.x.y[1]}'.format(q)", "{'z': 'deep'}"},
      {"'{!r}|{!s}'.format('a', 'a')", "'a'|a"},
      {"'{:}'.format(1)", "1"},
      {"'{a:>{w}}'.format(a=1, w=5)", "error"},
      {"'{{{}}}'.format(1)", "{1}"},
      {"'}'.format()", "error"},
      {"'{0'.format(1)", "error"},
      {"'{0[a}'.format(d)", "error"},
      {"'{!x}'.format(1)", "error"},
      {"'{nope}'.format(a=1)", "error"},
  });
}

TEST(JinjaFormat, BraceSpecs) {
  expect_expressions(std::vector<ExpressionCase>{
      {"'{:5}|{:5}|'.format(1, 'a')", "    1|a    |"},
      {"'{:<5}|{:>5}|{:^5}|'.format(1, 'a', 'b')", "1    |    a|  b  |"},
      {"'{:*<5}|{:é>5}|'.format(1, 'a')", "1****|ééééa|"},
      {"'{:=5}|{:05}|{:=+5}|'.format(-1, -1, 1)", "-   1|-0001|+   1|"},
      {"'{:+}|{: }|{:-}'.format(1, 1, 1)", "+1| 1|1"},
      {"'{:d}|{:x}|{:X}|{:o}|{:b}'.format(10, 10, 10, 10, 10)", "10|a|A|12|1010"},
      {"'{:#x}|{:#b}|{:#o}'.format(10, 10, 10)", "0xa|0b1010|0o12"},
      {"'{:,}|{:_}'.format(1234567, 1234567)", "1,234,567|1_234_567"},
      {"'{:,}'.format(1234567.5)", "1,234,567.5"},
      {"'{:.2f}|{:.0f}|{:f}'.format(2.675, 2.5, 1)", "2.67|2|1.000000"},
      {"'{:e}|{:.1E}|{:g}'.format(1234.5, 1234.5, 1234.5)", "1.234500e+03|1.2E+03|1234.5"},
      {"'{:%}|{:.1%}'.format(0.5, 0.123)", "50.000000%|12.3%"},
      {"'{:10.2f}|{:<10.2f}|{:010.2f}'.format(2.5, 2.5, 2.5)", "      2.50|2.50      |0000002.50"},
      {"'{:}'.format(2.0)", "2.0"},
      {"'{:5}|'.format(2.0)", "  2.0|"},
      {"'{:.3}'.format(1234.5)", "1.23e+03"},
      {"'{:.3}|{:10.2}|'.format('abcdef', 'abcdef')", "abc|ab        |"},
      {"'{:s}'.format('a')", "a"},
      {"'{:s}'.format(1)", "error"},
      {"'{:d}'.format(1.5)", "error"},
      {"'{:.2}'.format(1)", "error"},
      {"'{:+}'.format('a')", "error"},
      {"'{:=5}'.format('a')", "error"},
      {"'{:5}'.format(none)", "error"},
      {"'{:5}|'.format(true)", "    1|"},
      {"'{:>10}'.format([1])", "error"},
      {"'{}'.format(none)", "None"},
      {"'{:q}'.format(1)", "error"},
  });
}

}  // namespace
}  // namespace motley::jinja
