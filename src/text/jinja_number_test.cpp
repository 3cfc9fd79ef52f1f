#include "text/jinja_number.h"

#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <cmath>
#include <cstdlib>
#include <limits>

namespace motley::jinja {
namespace {

TEST(JinjaNumber, ReadsIntegers) {
  EXPECT_EQ(parse_integer("42", 10), 42);
  EXPECT_EQ(parse_integer(" -1_000\n", 10), -1000);
  EXPECT_EQ(parse_integer("+7", 10), 7);
  EXPECT_EQ(parse_integer("0x1F", 0), 31);
  EXPECT_EQ(parse_integer("0b101", 0), 5);
  EXPECT_EQ(parse_integer("0o17", 0), 15);
  EXPECT_EQ(parse_integer("0x_f", 0), 15);
  EXPECT_EQ(parse_integer("1f", 16), 31);
  EXPECT_EQ(parse_integer("0x1f", 16), 31);
  EXPECT_EQ(parse_integer("00", 0), 0);
  EXPECT_EQ(parse_integer("007", 10), 7);
  EXPECT_EQ(parse_integer("-9223372036854775808", 10), std::numeric_limits<std::int64_t>::min());
}

TEST(JinjaNumber, RefusesWhatIsNoInteger) {
  for (const std::string_view text : {"", "-", "+-1", "--1", "1 2", "1.5", "x", "_1", "1_", "1__0",
                                      "007", "0x", "9223372036854775808", "1e3", "٣x"}) {
    EXPECT_EQ(parse_integer(text, 0), std::nullopt) << text;
  }
  EXPECT_EQ(parse_integer("-9223372036854775809", 10), std::nullopt);
  EXPECT_EQ(parse_integer("1", 1), std::nullopt);
  EXPECT_EQ(parse_integer("1", 37), std::nullopt);
}

TEST(JinjaNumber, ReadsFloats) {
  EXPECT_EQ(parse_float("1.5"), 1.5);
  EXPECT_EQ(parse_float(" -1e3 "), -1000.0);
  EXPECT_EQ(parse_float(".5"), 0.5);
  EXPECT_EQ(parse_float("5."), 5.0);
  EXPECT_EQ(parse_float("1_0.5"), 10.5);
  EXPECT_EQ(parse_float("1e999"), std::numeric_limits<double>::infinity());
  EXPECT_EQ(parse_float("1e-999"), 0.0);
  EXPECT_EQ(parse_float("-Infinity"), -std::numeric_limits<double>::infinity());
  EXPECT_TRUE(std::isnan(parse_float("nan").value()));
  for (const std::string_view text : {"", ".", "e5", "1e", "0x1p3", "1,5", "in", "--1"}) {
    EXPECT_EQ(parse_float(text), std::nullopt) << text;
  }
}

TEST(JinjaNumber, PrintsFloatsAsPython) {
  EXPECT_EQ(float_repr(0.0), "0.0");
  EXPECT_EQ(float_repr(-0.0), "-0.0");
  EXPECT_EQ(float_repr(1.0), "1.0");
  EXPECT_EQ(float_repr(100.0), "100.0");
  EXPECT_EQ(float_repr(0.1), "0.1");
  EXPECT_EQ(float_repr(1.0 / 3), "0.3333333333333333");
  EXPECT_EQ(float_repr(1e15), "1000000000000000.0");
  EXPECT_EQ(float_repr(1e16), "1e+16");
  EXPECT_EQ(float_repr(1.5e16), "1.5e+16");
  EXPECT_EQ(float_repr(0.0001), "0.0001");
  EXPECT_EQ(float_repr(0.00001), "1e-05");
  EXPECT_EQ(float_repr(-1.25e-100), "-1.25e-100");
  EXPECT_EQ(float_repr(5e-324), "5e-324");
  EXPECT_EQ(float_repr(std::numeric_limits<double>::infinity()), "inf");
  EXPECT_EQ(float_repr(-std::numeric_limits<double>::infinity()), "-inf");
  EXPECT_EQ(float_repr(std::numeric_limits<double>::quiet_NaN()), "nan");
}

RC_GTEST_PROP(JinjaNumber, FloatsComeBack, (double value)) {
  RC_ASSERT(std::strtod(float_repr(value).c_str(), nullptr) == value);
  RC_ASSERT(parse_float(float_repr(value)) == value);
}

RC_GTEST_PROP(JinjaNumber, IntegersComeBack, (std::int64_t value)) {
  RC_ASSERT(parse_integer(std::to_string(value), 10) == value);
}

}  // namespace
}  // namespace motley::jinja
