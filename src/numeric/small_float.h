// The 8-bit and 4-bit floats of quantised checkpoints: E4M3, E5M2, E8M0 and E2M1.
//
//   E4M3  s1 e4 m3, bias 7, no infinity, 0x7F and 0xFF are NaN, largest 448
//   E5M2  s1 e5 m2, bias 15, infinity 0x7C, NaN 0x7D to 0x7F, largest 57344
//   E8M0  2^(code - 127), no zero, 255 is NaN
//   E2M1  0, 0.5, 1, 1.5, 2, 3, 4, 6 and their negatives; no infinity, no NaN
// Decoding is exact in float32. Source: OCP Microscaling Formats (MX) specification 1.0, OCP 8-bit
// Floating Point specification 1.0.
// Thread rule: pure functions.
#pragma once

#include <array>
#include <cstdint>

namespace motley {

struct E4M3 {
  uint8_t bits;
};
struct E5M2 {
  uint8_t bits;
};
struct E8M0 {
  uint8_t bits;
};
struct E2M1 {
  uint8_t bits;  // the low four
};

float to_float(E4M3 value);
float to_float(E5M2 value);
float to_float(E8M0 value);

inline constexpr std::array<float, 16> kE2M1Values = {0.0f,  0.5f,  1.0f,  1.5f,  2.0f,  3.0f,
                                                      4.0f,  6.0f,  -0.0f, -0.5f, -1.0f, -1.5f,
                                                      -2.0f, -3.0f, -4.0f, -6.0f};
inline float to_float(E2M1 value) {
  return kE2M1Values[value.bits & 15u];
}

// Nearest, ties to the even code. What is too large becomes the largest finite value, infinity
// too; NaN stays NaN (E4M3 and E5M2), or becomes 0 where the format has none (E2M1).
E4M3 to_e4m3(float value);
E5M2 to_e5m2(float value);
E2M1 to_e2m1(float value);
// The power of two at or above `value` that is nearest to it, within [2^-127, 2^127]; NaN for NaN.
// Negative values and 0 give 2^-127.
E8M0 to_e8m0_up(float value);

}  // namespace motley
