#include "numeric/small_float.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>

namespace motley {
namespace {

constexpr uint32_t kMagnitude = 0x7FFFFFFFu;
constexpr uint32_t kInfinity = 0x7F800000u;

float signed_value(uint32_t sign, float magnitude) {
  return std::bit_cast<float>((sign << 31) | std::bit_cast<uint32_t>(magnitude));
}

template <int kMantissaBits, int kBias>
float decode(uint8_t bits) {
  const uint32_t sign = bits >> 7;
  const int exponent = (bits & 0x7F) >> kMantissaBits;
  const int mantissa = bits & ((1 << kMantissaBits) - 1);
  const int implicit = exponent == 0 ? 0 : 1 << kMantissaBits;
  return signed_value(sign, std::ldexp(static_cast<float>(implicit + mantissa),
                                       std::max(exponent, 1) - kBias - kMantissaBits));
}

// `magnitude` is finite, and largest at most; the code of it without a sign.
template <int kMantissaBits, int kBias>
uint8_t encode(float magnitude) {
  constexpr int kLowest = 1 - kBias;  // exponent of the smallest normal and of all subnormals
  const int exponent = magnitude == 0 ? kLowest : std::max(std::ilogb(magnitude), kLowest);
  // Exact: a power of two times a float32 that is far from its own subnormals, or rounds to 0.
  const float steps = std::nearbyint(std::ldexp(magnitude, kMantissaBits - exponent));
  // A mantissa that rounds up to 2 carries into the exponent, and a subnormal into the normals.
  return static_cast<uint8_t>(((exponent - kLowest) << kMantissaBits) + static_cast<int>(steps));
}

constexpr std::array<float, 256> e4m3_table() {
  std::array<float, 256> table = {};
  for (uint32_t code = 0; code < 256; ++code) {
    const uint32_t exponent = (code & 0x7Fu) >> 3;
    const uint32_t mantissa = code & 7u;
    const uint32_t sign = (code >> 7) << 31;
    if ((code & 0x7Fu) == 0x7Fu) {
      table[code] = std::bit_cast<float>(sign | 0x7FC00000u);
    } else if (exponent == 0) {
      const float magnitude = static_cast<float>(mantissa) * 0x1p-9f;
      table[code] = std::bit_cast<float>(sign | std::bit_cast<uint32_t>(magnitude));
    } else {
      table[code] = std::bit_cast<float>(sign | ((exponent + 120) << 23) | (mantissa << 20));
    }
  }
  return table;
}

constexpr std::array<float, 256> kE4M3Values = e4m3_table();

}  // namespace

float to_float(E4M3 value) {
  return kE4M3Values[value.bits];
}

float to_float(E5M2 value) {
  const uint32_t magnitude = value.bits & 0x7Fu;
  const uint32_t sign = value.bits >> 7;
  if (magnitude == 0x7C) return signed_value(sign, std::numeric_limits<float>::infinity());
  if (magnitude > 0x7C) return signed_value(sign, std::numeric_limits<float>::quiet_NaN());
  return decode<2, 15>(value.bits);
}

float to_float(E8M0 value) {
  if (value.bits == 255) return std::numeric_limits<float>::quiet_NaN();
  if (value.bits == 0) return 0x1p-127f;
  return std::bit_cast<float>(static_cast<uint32_t>(value.bits) << 23);
}

E4M3 to_e4m3(float value) {
  const auto bits = std::bit_cast<uint32_t>(value);
  const auto sign = static_cast<uint8_t>((bits >> 24) & 0x80u);
  if ((bits & kMagnitude) > kInfinity) return {static_cast<uint8_t>(sign | 0x7Fu)};
  return {static_cast<uint8_t>(sign | encode<3, 7>(std::min(std::fabs(value), 448.0f)))};
}

E5M2 to_e5m2(float value) {
  const auto bits = std::bit_cast<uint32_t>(value);
  const auto sign = static_cast<uint8_t>((bits >> 24) & 0x80u);
  if ((bits & kMagnitude) > kInfinity) return {static_cast<uint8_t>(sign | 0x7Fu)};
  return {static_cast<uint8_t>(sign | encode<2, 15>(std::min(std::fabs(value), 57344.0f)))};
}

E2M1 to_e2m1(float value) {
  if (std::isnan(value)) return {0};
  const auto sign = static_cast<uint8_t>(std::signbit(value) ? 8 : 0);
  return {static_cast<uint8_t>(sign | encode<1, 1>(std::min(std::fabs(value), 6.0f)))};
}

E8M0 to_e8m0_up(float value) {
  if (std::isnan(value)) return {255};
  if (!(value > 0x1p-127f)) return {0};
  if (value > 0x1p+127f) return {254};
  const int exponent = std::ilogb(value);
  const bool exact = std::ldexp(1.0f, exponent) == value;
  return {static_cast<uint8_t>(exponent + 127 + (exact ? 0 : 1))};
}

}  // namespace motley
