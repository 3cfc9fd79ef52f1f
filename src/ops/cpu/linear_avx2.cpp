#include <immintrin.h>

#include <initializer_list>

#include "ops/cpu/linear_kernels.h"

namespace motley {
namespace {

using Ints = __m256i;
using Floats = __m256;
constexpr int64_t kLanes = 8;

Ints zero_ints() {
  return _mm256_setzero_si256();
}
Floats zero() {
  return _mm256_setzero_ps();
}
Floats load(const float* data) {
  return _mm256_loadu_ps(data);
}
void store(float* data, Floats value) {
  _mm256_storeu_ps(data, value);
}
Floats broadcast(float value) {
  return _mm256_set1_ps(value);
}
Floats multiply(Floats a, Floats b) {
  return _mm256_mul_ps(a, b);
}
Floats fma(Floats a, Floats b, Floats c) {
  return _mm256_fmadd_ps(a, b, c);
}
Ints add(Ints a, Ints b) {
  return _mm256_add_epi32(a, b);
}
Ints shift_left_8(Ints a) {
  return _mm256_slli_epi32(a, 8);
}
Ints subtract(Ints a, Ints b) {
  return _mm256_sub_epi32(a, b);
}
Ints load_ints(const void* data) {
  return _mm256_loadu_si256(static_cast<const __m256i*>(data));
}
Floats to_floats(Ints a) {
  return _mm256_cvtepi32_ps(a);
}

// Codes of up to 6 bits keep the sum of two products in 16 bits; wider ones go nibble by nibble.
Ints add_products(Ints sums, __m256i codes, __m256i x, bool wide) {
  const __m256i ones = _mm256_set1_epi16(1);
  if (!wide) {
    return _mm256_add_epi32(sums, _mm256_madd_epi16(_mm256_maddubs_epi16(codes, x), ones));
  }
  const __m256i mask = _mm256_set1_epi8(15);
  const __m256i low = _mm256_maddubs_epi16(_mm256_and_si256(codes, mask), x);
  const __m256i high = _mm256_maddubs_epi16(_mm256_and_si256(_mm256_srli_epi16(codes, 4), mask), x);
  sums = _mm256_add_epi32(sums, _mm256_madd_epi16(low, ones));
  return _mm256_add_epi32(sums, _mm256_madd_epi16(high, _mm256_set1_epi16(16)));
}

__m256i load_bytes(const void* data) {
  return _mm256_loadu_si256(static_cast<const __m256i*>(data));
}

__m256i load_halves(const void* data) {
  const auto* half = static_cast<const __m128i*>(data);
  return _mm256_inserti128_si256(_mm256_castsi128_si256(_mm_loadu_si128(half)),
                                 _mm_loadu_si128(half + 4), 1);
}

Ints add_dot(Ints sums, const uint8_t* codes, const int8_t* x, bool wide) {
  return add_products(sums, load_bytes(codes), load_bytes(x), wide);
}
Ints add_dot_halves(Ints sums, const uint8_t* codes, const int8_t* x, bool wide) {
  return add_products(sums, load_halves(codes), load_halves(x), wide);
}

Ints sum_each(const Ints (&v)[kLanes]) {
  const __m256i a = _mm256_hadd_epi32(_mm256_hadd_epi32(v[0], v[1]), _mm256_hadd_epi32(v[2], v[3]));
  const __m256i b = _mm256_hadd_epi32(_mm256_hadd_epi32(v[4], v[5]), _mm256_hadd_epi32(v[6], v[7]));
  return _mm256_add_epi32(_mm256_permute2x128_si256(a, b, 0x20),
                          _mm256_permute2x128_si256(a, b, 0x31));
}

Ints sum_pairs(const Ints (&v)[kLanes / 2]) {
  const __m256i a = _mm256_hadd_epi32(v[0], v[1]);
  const __m256i b = _mm256_hadd_epi32(v[2], v[3]);
  return _mm256_add_epi32(_mm256_permute2x128_si256(a, b, 0x20),
                          _mm256_permute2x128_si256(a, b, 0x31));
}

Floats load_weights(const uint8_t* data, ScalarFormat format, int64_t index) {
  if (format == ScalarFormat::kF32) {
    return _mm256_loadu_ps(reinterpret_cast<const float*>(data + 4 * index));
  }
  if (format == ScalarFormat::kE4M3) {
    const __m128i codes = _mm_loadl_epi64(reinterpret_cast<const __m128i*>(data + index));
    // The sign comes to the top bit and the one below, which it leaves again.
    const __m128i half = _mm_slli_epi16(_mm_cvtepi8_epi16(codes), 7);
    return _mm256_cvtph_ps(_mm_and_si128(half, _mm_set1_epi16(static_cast<int16_t>(0xBFFF))));
  }
  const __m128i bits = _mm_loadu_si128(reinterpret_cast<const __m128i*>(data + 2 * index));
  if (format == ScalarFormat::kF16) return _mm256_cvtph_ps(bits);
  return _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_cvtepu16_epi32(bits), 16));
}

float half_to_float(uint16_t bits) {
  return _cvtsh_ss(bits);
}

void split_nibbles(const uint8_t* data, uint8_t* low, uint8_t* high) {
  const __m256i mask = _mm256_set1_epi8(15);
  const __m256i packed = load_bytes(data);
  _mm256_storeu_si256(reinterpret_cast<__m256i*>(low), _mm256_and_si256(packed, mask));
  _mm256_storeu_si256(reinterpret_cast<__m256i*>(high),
                      _mm256_and_si256(_mm256_srli_epi16(packed, 4), mask));
}

void split_e2m1(const uint8_t* data, uint8_t* low, uint8_t* high) {
  const __m256i codes = _mm256_setr_epi8(12, 13, 14, 15, 16, 18, 20, 24, 12, 11, 10, 9, 8, 6, 4, 0,
                                         12, 13, 14, 15, 16, 18, 20, 24, 12, 11, 10, 9, 8, 6, 4, 0);
  split_nibbles(data, low, high);
  for (uint8_t* half : {low, high}) {
    _mm256_storeu_si256(reinterpret_cast<__m256i*>(half),
                        _mm256_shuffle_epi8(codes, load_bytes(half)));
  }
}

}  // namespace
}  // namespace motley

#include "ops/cpu/linear_inl.h"

namespace motley {

LinearKernels linear_kernels_avx2() {
  return {pack_groups, affine_rows, float_rows, silu_multiply, scratch_bytes};
}

}  // namespace motley
