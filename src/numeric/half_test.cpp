#include "numeric/half.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "numeric/dtype.h"

namespace motley {
namespace {

TEST(Half, EveryF16CodeRoundTrips) {
  for (uint32_t code = 0; code <= 0xFFFF; ++code) {
    const F16 half{static_cast<uint16_t>(code)};
    const float value = to_float(half);
    if (std::isnan(value)) {
      EXPECT_TRUE(std::isnan(to_float(to_f16(value))));
    } else {
      EXPECT_EQ(to_f16(value).bits, half.bits) << code;
    }
  }
}

TEST(Half, F16RoundsToNearestEven) {
  // Between two neighbouring codes: below the middle goes down, above goes up, ties to even.
  for (uint32_t code = 0; code < 0x7BFF; ++code) {
    const float low = to_float(F16{static_cast<uint16_t>(code)});
    const float high = to_float(F16{static_cast<uint16_t>(code + 1)});
    const float middle = (low + high) / 2;
    EXPECT_EQ(to_f16(middle).bits, (code & 1) ? code + 1 : code);
    EXPECT_EQ(to_f16(std::nextafter(middle, 0.0f)).bits, code);
    EXPECT_EQ(to_f16(std::nextafter(middle, 1e9f)).bits, code + 1);
  }
  EXPECT_EQ(to_f16(65519.9f).bits, 0x7BFF);
  EXPECT_EQ(to_f16(65520.0f).bits, 0x7C00);
  EXPECT_EQ(to_f16(-1e30f).bits, 0xFC00);
}

TEST(Half, EveryBf16CodeRoundTripsAndTiesGoToEven) {
  for (uint32_t code = 0; code <= 0xFFFF; ++code) {
    const Bf16 half{static_cast<uint16_t>(code)};
    const float value = to_float(half);
    if (std::isnan(value)) {
      EXPECT_TRUE(std::isnan(to_float(to_bf16(value))));
    } else {
      EXPECT_EQ(to_bf16(value).bits, half.bits);
    }
  }
  EXPECT_EQ(to_bf16(std::bit_cast<float>(0x3F808000u)).bits, 0x3F80);
  EXPECT_EQ(to_bf16(std::bit_cast<float>(0x3F818000u)).bits, 0x3F82);
  EXPECT_EQ(to_bf16(std::bit_cast<float>(0x3F808001u)).bits, 0x3F81);
  EXPECT_TRUE(std::isinf(to_float(to_bf16(std::numeric_limits<float>::max()))));
}

TEST(DType, NamesRoundTrip) {
  for (int i = 0; i <= static_cast<int>(DType::kF64); ++i) {
    const auto dtype = static_cast<DType>(i);
    EXPECT_EQ(dtype_from_name(dtype_name(dtype)), dtype);
    EXPECT_GE(dtype_bytes(dtype), 1);
  }
  EXPECT_FALSE(dtype_from_name("F4").has_value());
}

}  // namespace
}  // namespace motley
