#include "numeric/small_float.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>

namespace motley {
namespace {

constexpr float kInfinity = std::numeric_limits<float>::infinity();

// The definition, in float64.
double defined_value(int code, int mantissa_bits, int bias) {
  const int exponent = (code & 0x7F) >> mantissa_bits;
  const double fraction =
      static_cast<double>(code & ((1 << mantissa_bits) - 1)) / (1 << mantissa_bits);
  const double magnitude =
      exponent == 0 ? std::ldexp(fraction, 1 - bias) : std::ldexp(1 + fraction, exponent - bias);
  return code & 0x80 ? -magnitude : magnitude;
}

TEST(SmallFloat, EveryE4M3Code) {
  for (int code = 0; code < 256; ++code) {
    const E4M3 stored{static_cast<uint8_t>(code)};
    const float value = to_float(stored);
    if ((code & 0x7F) == 0x7F) {
      EXPECT_TRUE(std::isnan(value));
      EXPECT_TRUE(std::isnan(to_float(to_e4m3(value))));
      continue;
    }
    EXPECT_EQ(double{value}, defined_value(code, 3, 7)) << code;
    EXPECT_EQ(std::signbit(value), code >= 128);
    EXPECT_EQ(to_e4m3(value).bits, code);
  }
  EXPECT_EQ(to_float(E4M3{0x7E}), 448.0f);
  EXPECT_EQ(to_float(E4M3{0x08}), 0x1p-6f);
  EXPECT_EQ(to_float(E4M3{0x01}), 0x1p-9f);
}

TEST(SmallFloat, EveryE5M2Code) {
  for (int code = 0; code < 256; ++code) {
    const E5M2 stored{static_cast<uint8_t>(code)};
    const float value = to_float(stored);
    if ((code & 0x7F) > 0x7C) {
      EXPECT_TRUE(std::isnan(value));
      EXPECT_TRUE(std::isnan(to_float(to_e5m2(value))));
    } else if ((code & 0x7F) == 0x7C) {
      EXPECT_EQ(value, code < 128 ? kInfinity : -kInfinity);
      EXPECT_EQ(to_e5m2(value).bits, (code & 0x80) | 0x7B);  // writers saturate
    } else {
      EXPECT_EQ(double{value}, defined_value(code, 2, 15)) << code;
      EXPECT_EQ(to_e5m2(value).bits, code);
    }
  }
}

TEST(SmallFloat, EveryE8M0Code) {
  for (int code = 0; code < 255; ++code) {
    const float value = to_float(E8M0{static_cast<uint8_t>(code)});
    EXPECT_EQ(double{value}, std::ldexp(1.0, code - 127)) << code;
    EXPECT_EQ(to_e8m0_up(value).bits, code);
    if (code < 254) {
      EXPECT_EQ(to_e8m0_up(std::nextafter(value, kInfinity)).bits, code + 1);
      EXPECT_EQ(to_e8m0_up(value * 1.5f).bits, code + 1);
    }
  }
  EXPECT_TRUE(std::isnan(to_float(E8M0{255})));
  EXPECT_EQ(to_e8m0_up(std::numeric_limits<float>::quiet_NaN()).bits, 255);
  EXPECT_EQ(to_e8m0_up(kInfinity).bits, 254);
  EXPECT_EQ(to_e8m0_up(0).bits, 0);
  EXPECT_EQ(to_e8m0_up(-4).bits, 0);
}

TEST(SmallFloat, EveryE2M1Code) {
  constexpr double kValues[] = {0, 0.5, 1, 1.5, 2, 3, 4, 6};
  for (int code = 0; code < 16; ++code) {
    const float value = to_float(E2M1{static_cast<uint8_t>(code)});
    EXPECT_EQ(std::fabs(double{value}), kValues[code & 7]);
    EXPECT_EQ(std::signbit(value), code >= 8);
    EXPECT_EQ(to_e2m1(value).bits, code);
  }
  EXPECT_EQ(to_e2m1(std::numeric_limits<float>::quiet_NaN()).bits, 0);
}

// Between two neighbouring codes: below the middle down, above it up, a tie to the even code.
template <typename Decode, typename Encode>
void expect_nearest_even(int codes, int sign, Decode decode, Encode encode) {
  for (int code = 0; code + 1 < codes; ++code) {
    const float low = decode(code);
    const float high = decode(code + 1);
    const float middle = (low + high) / 2;
    EXPECT_EQ(encode(middle), code % 2 == 0 ? code : code + 1);
    EXPECT_EQ(encode(std::nextafter(middle, 0.0f)), code);
    EXPECT_EQ(encode(std::nextafter(middle, kInfinity)), code + 1);
    EXPECT_EQ(encode(-middle), sign | (code % 2 == 0 ? code : code + 1));
  }
  const float largest = decode(codes - 1);
  for (const float above : {largest * 1.01f, largest * 2, 1e30f, kInfinity}) {
    EXPECT_EQ(encode(above), codes - 1);
    EXPECT_EQ(encode(-above), sign | (codes - 1));
  }
  EXPECT_EQ(encode(std::numeric_limits<float>::denorm_min()), 0);
  EXPECT_EQ(encode(-std::numeric_limits<float>::denorm_min()), sign);
}

TEST(SmallFloat, RoundsToNearestEvenAndSaturates) {
  expect_nearest_even(
      0x7F, 0x80, [](int code) { return to_float(E4M3{static_cast<uint8_t>(code)}); },
      [](float value) { return to_e4m3(value).bits; });
  expect_nearest_even(
      0x7C, 0x80, [](int code) { return to_float(E5M2{static_cast<uint8_t>(code)}); },
      [](float value) { return to_e5m2(value).bits; });
  expect_nearest_even(
      8, 8, [](int code) { return to_float(E2M1{static_cast<uint8_t>(code)}); },
      [](float value) { return to_e2m1(value).bits; });
}

// The list that writers of NVFP4 agree on.
TEST(SmallFloat, TiesOfE2M1) {
  EXPECT_EQ(to_float(to_e2m1(0.25f)), 0.0f);
  EXPECT_EQ(to_float(to_e2m1(0.75f)), 1.0f);
  EXPECT_EQ(to_float(to_e2m1(1.25f)), 1.0f);
  EXPECT_EQ(to_float(to_e2m1(1.75f)), 2.0f);
  EXPECT_EQ(to_float(to_e2m1(2.5f)), 2.0f);
  EXPECT_EQ(to_float(to_e2m1(3.5f)), 4.0f);
  EXPECT_EQ(to_float(to_e2m1(5.0f)), 4.0f);
}

}  // namespace
}  // namespace motley
