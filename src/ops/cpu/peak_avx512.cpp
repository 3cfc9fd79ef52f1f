#include <immintrin.h>

#include "ops/cpu/peak_kernels.h"

namespace motley {
namespace {

constexpr int kChains = 16;

// Through memory: g++ 12 warns about its own casts to narrower vectors.
float first_of(__m512 sums) {
  float lanes[16];
  _mm512_storeu_ps(lanes, sums);
  return lanes[0];
}

float run_float(int64_t rounds) {
  __m512 sums[kChains];
  for (__m512& sum : sums) sum = _mm512_setzero_ps();
  __m512 x = _mm512_set1_ps(0.5f);
  __m512 w = _mm512_set1_ps(0.25f);
  for (int64_t round = 0; round < rounds; ++round) {
    for (__m512& sum : sums) sum = _mm512_fmadd_ps(x, w, sum);
    asm volatile("" : "+v"(x), "+v"(w));
  }
  __m512 total = _mm512_setzero_ps();
  for (const __m512& sum : sums) total = _mm512_add_ps(total, sum);
  return first_of(total);
}

float run_int8(int64_t rounds) {
  __m512i sums[kChains];
  for (__m512i& sum : sums) sum = _mm512_setzero_si512();
  __m512i x = _mm512_set1_epi8(3);
  __m512i w = _mm512_set1_epi8(5);
  for (int64_t round = 0; round < rounds; ++round) {
    for (__m512i& sum : sums) sum = _mm512_dpbusd_epi32(sum, x, w);
    asm volatile("" : "+v"(x), "+v"(w));
  }
  __m512i total = _mm512_setzero_si512();
  for (const __m512i& sum : sums) total = _mm512_add_epi32(total, sum);
  int32_t lanes[16];
  _mm512_storeu_si512(lanes, total);
  return static_cast<float>(lanes[0]);
}

float run_bfloat16(int64_t rounds) {
  __m512 sums[kChains];
  for (__m512& sum : sums) sum = _mm512_setzero_ps();
  __m512i x = _mm512_set1_epi16(0x3F00);  // 0.5
  __m512i w = _mm512_set1_epi16(0x3E80);  // 0.25
  for (int64_t round = 0; round < rounds; ++round) {
    for (__m512& sum : sums) {
      sum = _mm512_dpbf16_ps(sum, reinterpret_cast<__m512bh>(x), reinterpret_cast<__m512bh>(w));
    }
    asm volatile("" : "+v"(x), "+v"(w));
  }
  __m512 total = _mm512_setzero_ps();
  for (const __m512& sum : sums) total = _mm512_add_ps(total, sum);
  return first_of(total);
}

}  // namespace

PeakKernels peak_kernels_avx512() {
  return {{{"vfmadd231ps zmm", "float32", kChains * 16, run_float},
           {"vpdpbusd zmm", "int8", kChains * 64, run_int8},
           {"vdpbf16ps zmm", "bfloat16", kChains * 32, run_bfloat16}}};
}

}  // namespace motley
