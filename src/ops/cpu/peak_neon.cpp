#include <arm_neon.h>

#include "ops/cpu/peak_kernels.h"

namespace motley {
namespace {

constexpr int kChains = 16;

float run_float(int64_t rounds) {
  float32x4_t sums[kChains];
  for (float32x4_t& sum : sums) sum = vdupq_n_f32(0);
  float32x4_t x = vdupq_n_f32(0.5f);
  float32x4_t w = vdupq_n_f32(0.25f);
  for (int64_t round = 0; round < rounds; ++round) {
    for (float32x4_t& sum : sums) sum = vfmaq_f32(sum, x, w);
    asm volatile("" : "+w"(x), "+w"(w));
  }
  float32x4_t total = vdupq_n_f32(0);
  for (const float32x4_t& sum : sums) total = vaddq_f32(total, sum);
  return vaddvq_f32(total);
}

float run_int8(int64_t rounds) {
  int32x4_t sums[kChains];
  for (int32x4_t& sum : sums) sum = vdupq_n_s32(0);
  int8x16_t x = vdupq_n_s8(3);
  int8x16_t w = vdupq_n_s8(5);
  for (int64_t round = 0; round < rounds; ++round) {
    for (int32x4_t& sum : sums) sum = vdotq_s32(sum, x, w);
    asm volatile("" : "+w"(x), "+w"(w));
  }
  int32x4_t total = vdupq_n_s32(0);
  for (const int32x4_t& sum : sums) total = vaddq_s32(total, sum);
  return static_cast<float>(vaddvq_s32(total));
}

}  // namespace

PeakKernels peak_kernels_neon() {
  return {{{"fmla", "float32", kChains * 4, run_float}, {"sdot", "int8", kChains * 16, run_int8}}};
}

}  // namespace motley
