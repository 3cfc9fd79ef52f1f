#include "numeric/half.h"

namespace motley {

F16 to_f16(float value) {
  const auto bits = std::bit_cast<uint32_t>(value);
  const auto sign = static_cast<uint16_t>((bits >> 16) & 0x8000u);
  const uint32_t magnitude = bits & 0x7FFFFFFFu;
  if (magnitude > 0x7F800000u) {
    return {static_cast<uint16_t>(sign | 0x7E00u | ((magnitude >> 13) & 0x1FFu))};
  }
  if (magnitude >= 0x477FF000u) return {static_cast<uint16_t>(sign | 0x7C00u)};  // >= 65520
  if (magnitude < 0x38800000u) {
    // Subnormal half: adding 0.5 lets the float adder do the rounding at bit 2^-24.
    const float shifted = std::bit_cast<float>(magnitude) + 0.5f;
    const uint32_t mantissa = std::bit_cast<uint32_t>(shifted) - std::bit_cast<uint32_t>(0.5f);
    return {static_cast<uint16_t>(sign | mantissa)};
  }
  const uint32_t rounded = magnitude + 0xFFFu + ((magnitude >> 13) & 1u);
  return {static_cast<uint16_t>(sign | ((rounded - 0x38000000u) >> 13))};
}

}  // namespace motley
