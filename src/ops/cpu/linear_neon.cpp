#include <arm_neon.h>

#include "ops/cpu/linear_kernels.h"

namespace motley {
namespace {

using Ints = int32x4_t;
using Floats = float32x4_t;
constexpr int64_t kLanes = 4;

Ints zero_ints() {
  return vdupq_n_s32(0);
}
Floats zero() {
  return vdupq_n_f32(0);
}
Floats load(const float* data) {
  return vld1q_f32(data);
}
void store(float* data, Floats value) {
  vst1q_f32(data, value);
}
Floats broadcast(float value) {
  return vdupq_n_f32(value);
}
Floats multiply(Floats a, Floats b) {
  return vmulq_f32(a, b);
}
Floats fma(Floats a, Floats b, Floats c) {
  return vfmaq_f32(c, a, b);
}
Ints add(Ints a, Ints b) {
  return vaddq_s32(a, b);
}
Ints shift_left_8(Ints a) {
  return vshlq_n_s32(a, 8);
}
Floats to_floats(Ints a) {
  return vcvtq_f32_s32(a);
}

// The dot product is of signed bytes: codes of 8 bits go as their low 7 bits and the top one.
Ints add_dot(Ints sums, const uint8_t* codes, const int8_t* x, bool wide) {
  const uint8x16_t q = vld1q_u8(codes);
  const int8x16_t bytes = vld1q_s8(x);
  if (!wide) return vdotq_s32(sums, vreinterpretq_s8_u8(q), bytes);
  const int8x16_t low = vreinterpretq_s8_u8(vandq_u8(q, vdupq_n_u8(127)));
  const int8x16_t top = vreinterpretq_s8_u8(vshrq_n_u8(q, 7));
  sums = vdotq_s32(sums, low, bytes);
  return vaddq_s32(sums, vshlq_n_s32(vdotq_s32(vdupq_n_s32(0), top, bytes), 7));
}
Ints add_dot_halves(Ints sums, const uint8_t* codes, const int8_t* x, bool wide) {
  return add_dot(add_dot(sums, codes, x, wide), codes + 64, x + 64, wide);
}

Ints sum_each(const Ints (&v)[kLanes]) {
  return vpaddq_s32(vpaddq_s32(v[0], v[1]), vpaddq_s32(v[2], v[3]));
}

Ints subtract(Ints a, Ints b) {
  return vsubq_s32(a, b);
}
Ints load_ints(const void* data) {
  return vreinterpretq_s32_u8(vld1q_u8(static_cast<const uint8_t*>(data)));
}

Ints sum_pairs(const Ints (&v)[kLanes / 2]) {
  return vpaddq_s32(v[0], v[1]);
}

Floats load_weights(const uint8_t* data, ScalarFormat format, int64_t index) {
  if (format == ScalarFormat::kE4M3) {
    uint32_t codes;
    __builtin_memcpy(&codes, data + index, sizeof(codes));
    const int16x8_t wide = vmovl_s8(vreinterpret_s8_u32(vdup_n_u32(codes)));
    // The sign comes to the top bit and the one below, which it leaves again.
    const uint16x4_t half = vreinterpret_u16_s16(vshl_n_s16(vget_low_s16(wide), 7));
    return vcvt_f32_f16(vreinterpret_f16_u16(vand_u16(half, vdup_n_u16(0xBFFF))));
  }
  if (format == ScalarFormat::kF32) return vreinterpretq_f32_u8(vld1q_u8(data + 4 * index));
  const uint8x8_t bytes = vld1_u8(data + 2 * index);
  if (format == ScalarFormat::kF16) return vcvt_f32_f16(vreinterpret_f16_u8(bytes));
  return vreinterpretq_f32_u32(vshll_n_u16(vreinterpret_u16_u8(bytes), 16));
}

float half_to_float(uint16_t bits) {
  return vgetq_lane_f32(vcvt_f32_f16(vreinterpret_f16_u16(vdup_n_u16(bits))), 0);
}

void split_nibbles(const uint8_t* data, uint8_t* low, uint8_t* high) {
  for (int i = 0; i < 32; i += 16) {
    const uint8x16_t packed = vld1q_u8(data + i);
    vst1q_u8(low + i, vandq_u8(packed, vdupq_n_u8(15)));
    vst1q_u8(high + i, vshrq_n_u8(packed, 4));
  }
}

void split_e2m1(const uint8_t* data, uint8_t* low, uint8_t* high) {
  constexpr uint8_t kCodes[16] = {12, 13, 14, 15, 16, 18, 20, 24, 12, 11, 10, 9, 8, 6, 4, 0};
  const uint8x16_t codes = vld1q_u8(kCodes);
  for (int i = 0; i < 32; i += 16) {
    const uint8x16_t packed = vld1q_u8(data + i);
    vst1q_u8(low + i, vqtbl1q_u8(codes, vandq_u8(packed, vdupq_n_u8(15))));
    vst1q_u8(high + i, vqtbl1q_u8(codes, vshrq_n_u8(packed, 4)));
  }
}

}  // namespace
}  // namespace motley

#include "ops/cpu/linear_inl.h"

namespace motley {

LinearKernels linear_kernels_neon() {
  return {pack_groups, affine_rows, float_rows, silu_multiply, scratch_bytes};
}

}  // namespace motley
