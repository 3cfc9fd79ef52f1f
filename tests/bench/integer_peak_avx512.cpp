#include <immintrin.h>

#include <cstdint>

#include "tests/bench/machine_peaks.h"

namespace motley {

IntegerPeakRun integer_peak_avx512(int64_t iterations) {
  constexpr int kAccumulators = 16;
  __m512i sums[kAccumulators];
  for (__m512i& sum : sums) sum = _mm512_setzero_si512();
  __m512i codes = _mm512_set1_epi8(3);
  const __m512i x = _mm512_set1_epi8(-2);
  for (int64_t i = 0; i < iterations; ++i) {
    asm volatile("" : "+v"(codes));
    for (__m512i& sum : sums) sum = _mm512_dpbusd_epi32(sum, codes, x);
  }
  __m512i total = _mm512_setzero_si512();
  for (const __m512i& sum : sums) total = _mm512_add_epi32(total, sum);
  return {static_cast<double>(iterations) * kAccumulators * 128, _mm512_reduce_add_epi32(total)};
}

}  // namespace motley
