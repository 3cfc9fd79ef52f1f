#include "io/finite_scan.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <vector>

#include "numeric/half.h"

namespace motley {
namespace {

// Puts one 16-bit or 32-bit pattern at each place of an array of ordinary values.
template <typename T>
void check_pattern(T pattern, T ordinary, DType dtype, bool finite) {
  for (size_t count = 1; count < 12; ++count) {
    for (size_t at = 0; at < count; ++at) {
      std::vector<T> values(count, ordinary);
      values[at] = pattern;
      EXPECT_EQ(all_finite(std::as_bytes(std::span(values)), dtype), finite)
          << pattern << " at " << at << " of " << count;
    }
  }
}

TEST(FiniteScan, EveryBf16AndF16Pattern) {
  for (uint32_t bits = 0; bits < 0x10000; ++bits) {
    const auto pattern = static_cast<uint16_t>(bits);
    const std::vector<uint16_t> values{0xFF7F, pattern, 0x7F7F, 0x8000, pattern};
    const auto bytes = std::as_bytes(std::span(values));
    EXPECT_EQ(all_finite(bytes, DType::kBf16), std::isfinite(to_float(Bf16{pattern}))) << bits;
    const std::vector<uint16_t> halves{0xFBFF, pattern, 0x7BFF, 0x8000, pattern};
    EXPECT_EQ(all_finite(std::as_bytes(std::span(halves)), DType::kF16),
              std::isfinite(to_float(F16{pattern})))
        << bits;
  }
}

TEST(FiniteScan, AnyPlaceAndLength) {
  check_pattern<uint16_t>(0x7F80, 0xFF7F, DType::kBf16, false);
  check_pattern<uint16_t>(0xFFFF, 0x0000, DType::kBf16, false);
  check_pattern<uint16_t>(0x7F7F, 0xFF7F, DType::kBf16, true);
  check_pattern<uint16_t>(0x7C01, 0xFBFF, DType::kF16, false);
  check_pattern<float>(std::numeric_limits<float>::infinity(), 1e38f, DType::kF32, false);
  check_pattern<float>(-std::numeric_limits<float>::quiet_NaN(), -1.0f, DType::kF32, false);
  check_pattern<float>(std::numeric_limits<float>::max(), -3e38f, DType::kF32, true);
  EXPECT_TRUE(all_finite({}, DType::kF32));
}

}  // namespace
}  // namespace motley
