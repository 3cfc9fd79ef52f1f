// The vector wrapper for AVX-512: sixteen floats. Contracts as in simd_portable.h.
#pragma once

#include <immintrin.h>

#include <cstdint>

namespace motley {
namespace {

constexpr int kLanes = 16;
constexpr int kTilePairs = 4;
constexpr int kTileKeys = 4;

using Vec = __m512;

inline Vec load(const float* p) {
  return _mm512_loadu_ps(p);
}
inline void store(float* p, Vec v) {
  _mm512_storeu_ps(p, v);
}
inline __mmask16 first_lanes(int n) {
  return static_cast<__mmask16>((1u << n) - 1u);
}
inline Vec load_partial(const float* p, int n) {
  return _mm512_maskz_loadu_ps(first_lanes(n), p);
}
inline void store_partial(float* p, Vec v, int n) {
  _mm512_mask_storeu_ps(p, first_lanes(n), v);
}
inline Vec set1(float x) {
  return _mm512_set1_ps(x);
}
inline Vec zero() {
  return _mm512_setzero_ps();
}
inline Vec add(Vec a, Vec b) {
  return _mm512_add_ps(a, b);
}
inline Vec sub(Vec a, Vec b) {
  return _mm512_sub_ps(a, b);
}
inline Vec mul(Vec a, Vec b) {
  return _mm512_mul_ps(a, b);
}
inline Vec div(Vec a, Vec b) {
  return _mm512_div_ps(a, b);
}
inline Vec fma(Vec a, Vec b, Vec c) {
  return _mm512_fmadd_ps(a, b, c);
}
inline Vec select_less(Vec a, Vec b, Vec x, Vec y) {
  return _mm512_mask_blend_ps(_mm512_cmp_ps_mask(a, b, _CMP_LT_OQ), y, x);
}
inline Vec max(Vec a, Vec b) {
  return _mm512_maskz_max_ps(0xFFFF, b, a);  // with a NaN the second operand is returned
}
inline Vec round_nearest(Vec x) {
  return _mm512_maskz_roundscale_ps(0xFFFF, x, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
}
inline Vec power_of_two(Vec n) {
  const __m512i exponent = _mm512_maskz_cvtps_epi32(0xFFFF, n);
  return _mm512_castsi512_ps(
      _mm512_maskz_slli_epi32(0xFFFF, _mm512_add_epi32(exponent, _mm512_set1_epi32(127)), 23));
}
inline Vec mantissa(Vec x) {
  return _mm512_or_ps(_mm512_and_ps(x, _mm512_castsi512_ps(_mm512_set1_epi32(0x007FFFFF))),
                      _mm512_castsi512_ps(_mm512_set1_epi32(0x3F800000)));
}
inline Vec exponent(Vec x) {
  const __m512i biased = _mm512_maskz_srli_epi32(0xFFFF, _mm512_castps_si512(x), 23);
  return _mm512_maskz_cvtepi32_ps(0xFFFF, _mm512_sub_epi32(biased, _mm512_set1_epi32(127)));
}

// Folding steps: the sum of lanes i and i + 2, i + 1 within each quad, then across the quads.
inline Vec fold_quads(Vec a, Vec b) {
  return add(_mm512_maskz_unpacklo_ps(0xFFFF, a, b), _mm512_maskz_unpackhi_ps(0xFFFF, a, b));
}
inline Vec fold_pairs(Vec a, Vec b) {
  const __m512d low = _mm512_maskz_unpacklo_pd(0xFF, _mm512_castps_pd(a), _mm512_castps_pd(b));
  const __m512d high = _mm512_maskz_unpackhi_pd(0xFF, _mm512_castps_pd(a), _mm512_castps_pd(b));
  return add(_mm512_castpd_ps(low), _mm512_castpd_ps(high));
}
inline Vec reduce_add_each(const Vec* v) {
  Vec quads[4];  // quads[i], lane 4 b + j: quad b of v[4 i + j] summed
  for (int i = 0; i < 4; ++i) {
    quads[i] =
        fold_pairs(fold_quads(v[4 * i], v[4 * i + 1]), fold_quads(v[4 * i + 2], v[4 * i + 3]));
  }
  const Vec a = add(_mm512_maskz_shuffle_f32x4(0xFFFF, quads[0], quads[1], 0x44),
                    _mm512_maskz_shuffle_f32x4(0xFFFF, quads[0], quads[1], 0xEE));
  const Vec b = add(_mm512_maskz_shuffle_f32x4(0xFFFF, quads[2], quads[3], 0x44),
                    _mm512_maskz_shuffle_f32x4(0xFFFF, quads[2], quads[3], 0xEE));
  return add(_mm512_maskz_shuffle_f32x4(0xFFFF, a, b, 0x88),
             _mm512_maskz_shuffle_f32x4(0xFFFF, a, b, 0xDD));
}
inline float reduce_add(Vec v) {
  const Vec pairs = fold_quads(v, v);
  const Vec quads = fold_pairs(pairs, pairs);
  const Vec halves = add(quads, _mm512_maskz_shuffle_f32x4(0xFFFF, quads, quads, 0x4E));
  const Vec all = add(halves, _mm512_maskz_shuffle_f32x4(0xFFFF, halves, halves, 0xB1));
  return _mm512_cvtss_f32(all);
}
inline float reduce_max(Vec v) {
  const Vec halves = max(v, _mm512_maskz_shuffle_f32x4(0xFFFF, v, v, 0x4E));
  const Vec quads = max(halves, _mm512_maskz_shuffle_f32x4(0xFFFF, halves, halves, 0xB1));
  const Vec pairs = max(quads, _mm512_maskz_permute_ps(0xFFFF, quads, 0x4E));
  return _mm512_cvtss_f32(max(pairs, _mm512_maskz_permute_ps(0xFFFF, pairs, 0xB1)));
}

inline Vec load_bf16(const uint16_t* p) {
  const __m256i halves = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(p));
  return _mm512_castsi512_ps(
      _mm512_maskz_slli_epi32(0xFFFF, _mm512_maskz_cvtepu16_epi32(0xFFFF, halves), 16));
}
// In integers: the machine's own conversion flushes subnormals.
inline void store_bf16(uint16_t* p, Vec v) {
  const __m512i bits = _mm512_castps_si512(v);
  const __m512i high = _mm512_maskz_srli_epi32(0xFFFF, bits, 16);
  const __m512i odd = _mm512_and_si512(high, _mm512_set1_epi32(1));
  const __m512i sum = _mm512_add_epi32(_mm512_add_epi32(bits, _mm512_set1_epi32(0x7FFF)), odd);
  const __m512i rounded = _mm512_maskz_srli_epi32(0xFFFF, sum, 16);
  const __m512i quiet = _mm512_or_si512(high, _mm512_set1_epi32(0x40));
  const __mmask16 is_nan = _mm512_cmp_ps_mask(v, v, _CMP_UNORD_Q);
  _mm256_storeu_si256(
      reinterpret_cast<__m256i*>(p),
      _mm512_maskz_cvtepi32_epi16(0xFFFF, _mm512_mask_blend_epi32(is_nan, rounded, quiet)));
}

}  // namespace
}  // namespace motley
