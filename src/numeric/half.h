// Scalar conversions of the 16-bit floating-point formats, exact and branch-light.
// Source: facts of the formats as in IEEE 754 binary16 and the upper half of binary32 (bfloat16).
#pragma once

#include <bit>
#include <cstdint>

namespace motley {

struct Bf16 {
  uint16_t bits;
};
struct F16 {
  uint16_t bits;
};

inline float to_float(Bf16 value) {
  return std::bit_cast<float>(static_cast<uint32_t>(value.bits) << 16);
}

// Round to nearest even; NaN stays a quiet NaN.
inline Bf16 to_bf16(float value) {
  const auto bits = std::bit_cast<uint32_t>(value);
  if ((bits & 0x7FFFFFFFu) > 0x7F800000u) return {static_cast<uint16_t>((bits >> 16) | 0x40u)};
  return {static_cast<uint16_t>((bits + 0x7FFFu + ((bits >> 16) & 1u)) >> 16)};
}

inline float to_float(F16 value) {
  const uint32_t sign = static_cast<uint32_t>(value.bits & 0x8000u) << 16;
  const uint32_t exponent = (value.bits >> 10) & 0x1Fu;
  const uint32_t mantissa = value.bits & 0x3FFu;
  if (exponent == 0x1F) return std::bit_cast<float>(sign | 0x7F800000u | (mantissa << 13));
  if (exponent != 0)
    return std::bit_cast<float>(sign | ((exponent + 112) << 23) | (mantissa << 13));
  const float magnitude = static_cast<float>(mantissa) * 0x1p-24f;  // subnormal or zero, exact
  return std::bit_cast<float>(sign | std::bit_cast<uint32_t>(magnitude));
}

// Round to nearest even; overflow to infinity; NaN stays a quiet NaN.
F16 to_f16(float value);

}  // namespace motley
