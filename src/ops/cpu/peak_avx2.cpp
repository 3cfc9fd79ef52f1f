#include <immintrin.h>

#include "ops/cpu/peak_kernels.h"

namespace motley {
namespace {

constexpr int kChains = 12;  // enough independent sums to hide the latency of two units

float run_float(int64_t rounds) {
  __m256 sums[kChains];
  for (__m256& sum : sums) sum = _mm256_setzero_ps();
  __m256 x = _mm256_set1_ps(0.5f);
  __m256 w = _mm256_set1_ps(0.25f);
  for (int64_t round = 0; round < rounds; ++round) {
    for (__m256& sum : sums) sum = _mm256_fmadd_ps(x, w, sum);
    asm volatile("" : "+x"(x), "+x"(w));
  }
  __m256 total = _mm256_setzero_ps();
  for (const __m256& sum : sums) total = _mm256_add_ps(total, sum);
  return _mm256_cvtss_f32(total);
}

float run_int8(int64_t rounds) {
  __m256i sums[kChains];
  for (__m256i& sum : sums) sum = _mm256_setzero_si256();
  __m256i x = _mm256_set1_epi8(3);
  __m256i w = _mm256_set1_epi8(5);
  const __m256i ones = _mm256_set1_epi16(1);
  for (int64_t round = 0; round < rounds; ++round) {
    for (__m256i& sum : sums) {
      const __m256i pairs = _mm256_maddubs_epi16(x, w);
      sum = _mm256_add_epi32(sum, _mm256_madd_epi16(pairs, ones));
      asm volatile("" : "+x"(x), "+x"(w));
    }
  }
  __m256i total = _mm256_setzero_si256();
  for (const __m256i& sum : sums) total = _mm256_add_epi32(total, sum);
  return static_cast<float>(_mm_cvtsi128_si32(_mm256_castsi256_si128(total)));
}

}  // namespace

PeakKernels peak_kernels_avx2() {
  return {{{"vfmadd231ps ymm", "float32", kChains * 8, run_float},
           {"vpmaddubsw, vpmaddwd, vpaddd ymm", "int8", kChains * 32, run_int8}}};
}

}  // namespace motley
