// The vector wrapper for Arm Advanced SIMD: four floats. Contracts as in simd_portable.h.
#pragma once

#include <arm_neon.h>

#include <cstdint>

namespace motley {
namespace {

constexpr int kLanes = 4;
constexpr int kTilePairs = 4;
constexpr int kTileKeys = 4;

using Vec = float32x4_t;

inline Vec load(const float* p) {
  return vld1q_f32(p);
}
inline void store(float* p, Vec v) {
  vst1q_f32(p, v);
}
inline Vec load_partial(const float* p, int n) {
  float lanes[4] = {};
  for (int i = 0; i < n; ++i) lanes[i] = p[i];
  return vld1q_f32(lanes);
}
inline void store_partial(float* p, Vec v, int n) {
  float lanes[4];
  vst1q_f32(lanes, v);
  for (int i = 0; i < n; ++i) p[i] = lanes[i];
}
inline Vec set1(float x) {
  return vdupq_n_f32(x);
}
inline Vec zero() {
  return vdupq_n_f32(0.0f);
}
inline Vec add(Vec a, Vec b) {
  return vaddq_f32(a, b);
}
inline Vec sub(Vec a, Vec b) {
  return vsubq_f32(a, b);
}
inline Vec mul(Vec a, Vec b) {
  return vmulq_f32(a, b);
}
inline Vec div(Vec a, Vec b) {
  return vdivq_f32(a, b);
}
inline Vec fma(Vec a, Vec b, Vec c) {
  return vfmaq_f32(c, a, b);
}
inline Vec select_less(Vec a, Vec b, Vec x, Vec y) {
  return vbslq_f32(vcltq_f32(a, b), x, y);
}
inline Vec max(Vec a, Vec b) {
  return select_less(a, b, b, a);
}
inline Vec round_nearest(Vec x) {
  return vrndnq_f32(x);
}
inline Vec power_of_two(Vec n) {
  return vreinterpretq_f32_s32(vshlq_n_s32(vaddq_s32(vcvtq_s32_f32(n), vdupq_n_s32(127)), 23));
}
inline Vec mantissa(Vec x) {
  return vreinterpretq_f32_s32(vorrq_s32(
      vandq_s32(vreinterpretq_s32_f32(x), vdupq_n_s32(0x007FFFFF)), vdupq_n_s32(0x3F800000)));
}
inline Vec exponent(Vec x) {
  return vcvtq_f32_s32(vsubq_s32(vshrq_n_s32(vreinterpretq_s32_f32(x), 23), vdupq_n_s32(127)));
}
// Lanes fold as neighbours, then pairs.
inline float reduce_add(Vec v) {
  const Vec pairs = vpaddq_f32(v, v);
  return vgetq_lane_f32(vpaddq_f32(pairs, pairs), 0);
}
inline Vec reduce_add_each(const Vec* v) {
  return vpaddq_f32(vpaddq_f32(v[0], v[1]), vpaddq_f32(v[2], v[3]));
}
inline float reduce_max(Vec v) {
  return vmaxvq_f32(v);
}

inline Vec load_bf16(const uint16_t* p) {
  return vreinterpretq_f32_u32(vshll_n_u16(vld1_u16(p), 16));
}
inline void store_bf16(uint16_t* p, Vec v) {
  const uint32x4_t bits = vreinterpretq_u32_f32(v);
  const uint32x4_t high = vshrq_n_u32(bits, 16);
  const uint32x4_t odd = vandq_u32(high, vdupq_n_u32(1));
  const uint32x4_t rounded = vshrq_n_u32(vaddq_u32(vaddq_u32(bits, vdupq_n_u32(0x7FFF)), odd), 16);
  const uint32x4_t quiet = vorrq_u32(high, vdupq_n_u32(0x40));
  vst1_u16(p, vmovn_u32(vbslq_u32(vceqq_f32(v, v), rounded, quiet)));
}

}  // namespace
}  // namespace motley
