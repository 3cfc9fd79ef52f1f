// Pieces of the AVX-512 matrix kernels. Only for files built with AVX-512; everything is static, so
// that no other file can end up calling it.
#pragma once

#if defined(__GNUC__) && !defined(__clang__)
// The intrinsics of g++ 12 read a deliberately undefined vector.
#pragma GCC diagnostic ignored "-Wmaybe-uninitialized"
#pragma GCC diagnostic ignored "-Wuninitialized"
#endif

#include <immintrin.h>

#include "ops/cpu/linear_kernels.h"

// Loops are written out for speed. Sanitized builds leave them as they are: compilers take minutes
// over the checks of hundreds of loads in a row.
#define MOTLEY_PRAGMA(text) _Pragma(#text)
#ifdef MOTLEY_KEEP_LOOPS
#define MOTLEY_UNROLL(times)
#else
#define MOTLEY_UNROLL(times) MOTLEY_PRAGMA(GCC unroll times)
#endif

namespace motley {

// y for tokens of any number, lanes along the contraction dimension: few tokens.
void affine_dot_avx512(const AffineRows& weights, const PackedLayout& layout,
                       const PackedTokens& tokens);
// The same with output rows in the lanes and the weights unpacked to a tile: many tokens.
void affine_panels_avx512(const AffineRows& weights, const PackedLayout& layout,
                          const PackedTokens& tokens, std::byte* scratch);
int64_t affine_panel_scratch_avx512(int64_t cols);
void float_rows_avx512(const FloatRows& weights, const FloatTokens& tokens, bool fast,
                       std::byte* scratch);

// The same for E4M3 weights.
void e4m3_rows_avx512(const FloatRows& weights, const FloatTokens& tokens);

// The first `count` of 16 scalars, the others 0.
static inline __m512 load_scalars(const uint8_t* data, ScalarFormat format, int64_t count) {
  const auto mask = static_cast<__mmask16>(count >= 16 ? 0xFFFF : (1 << count) - 1);
  if (format == ScalarFormat::kF32) return _mm512_maskz_loadu_ps(mask, data);
  if (format == ScalarFormat::kE4M3) {
    // Positive ones: their bits are those of a half of 2^-8 the value.
    const __m256i codes = _mm256_cvtepu8_epi16(_mm_maskz_loadu_epi8(mask, data));
    return _mm512_mul_ps(_mm512_cvtph_ps(_mm256_slli_epi16(codes, 7)), _mm512_set1_ps(256.0f));
  }
  if (format == ScalarFormat::kE8M0) {
    const __m512i codes = _mm512_cvtepu8_epi32(_mm_maskz_loadu_epi8(mask, data));
    const __mmask16 smallest = _mm512_mask_testn_epi32_mask(mask, codes, codes);
    const __m512i bits = _mm512_slli_epi32(codes, 23);
    return _mm512_castsi512_ps(
        _mm512_mask_mov_epi32(bits, smallest, _mm512_set1_epi32(0x00400000)));
  }
  const __m256i bits = _mm256_maskz_loadu_epi16(mask, data);
  if (format == ScalarFormat::kF16) return _mm512_cvtph_ps(bits);
  return _mm512_castsi512_ps(_mm512_slli_epi32(_mm512_cvtepu16_epi32(bits), 16));
}

// rows[i] lane j <-> rows[j] lane i.
static inline void transpose16(__m512i (&rows)[16]) {
  __m512i pairs[16];
  for (int i = 0; i < 16; i += 2) {
    pairs[i] = _mm512_unpacklo_epi32(rows[i], rows[i + 1]);
    pairs[i + 1] = _mm512_unpackhi_epi32(rows[i], rows[i + 1]);
  }
  __m512i quads[16];  // quads[4 q + c]: column c of each 128-bit part, rows 4 q .. 4 q + 3
  for (int i = 0; i < 16; i += 4) {
    quads[i] = _mm512_unpacklo_epi64(pairs[i], pairs[i + 2]);
    quads[i + 1] = _mm512_unpackhi_epi64(pairs[i], pairs[i + 2]);
    quads[i + 2] = _mm512_unpacklo_epi64(pairs[i + 1], pairs[i + 3]);
    quads[i + 3] = _mm512_unpackhi_epi64(pairs[i + 1], pairs[i + 3]);
  }
  for (int c = 0; c < 4; ++c) {
    const __m512i low_even = _mm512_shuffle_i32x4(quads[c], quads[4 + c], 0x88);
    const __m512i low_odd = _mm512_shuffle_i32x4(quads[c], quads[4 + c], 0xDD);
    const __m512i high_even = _mm512_shuffle_i32x4(quads[8 + c], quads[12 + c], 0x88);
    const __m512i high_odd = _mm512_shuffle_i32x4(quads[8 + c], quads[12 + c], 0xDD);
    rows[c] = _mm512_shuffle_i32x4(low_even, high_even, 0x88);
    rows[8 + c] = _mm512_shuffle_i32x4(low_even, high_even, 0xDD);
    rows[4 + c] = _mm512_shuffle_i32x4(low_odd, high_odd, 0x88);
    rows[12 + c] = _mm512_shuffle_i32x4(low_odd, high_odd, 0xDD);
  }
}

// Lane i of the result: ((0 + lanes[i][0]) + lanes[i][1]) + ... + lanes[i][15].
static inline __m512 sum_lanes(const float (&lanes)[16][16]) {
  __m512i columns[16];
  for (int i = 0; i < 16; ++i) columns[i] = _mm512_load_si512(lanes[i]);
  transpose16(columns);
  __m512 sum = _mm512_setzero_ps();
  for (const __m512i& column : columns) sum = _mm512_add_ps(sum, _mm512_castsi512_ps(column));
  return sum;
}

static inline __mmask16 row_mask(int64_t rows) {
  return static_cast<__mmask16>(rows >= 16 ? 0xFFFF : (1 << rows) - 1);
}

// The two halves of a packed block (PackedLayout), one unsigned byte per code.
struct CodeHalves {
  __m512i low;
  __m512i high;
};

// 4 bits; 2 or 3; 5, 6 or 8; E2M1, whose codes become 12 + twice their value.
enum class CodeWidth { kNibble, kNarrow, kWide, kE2M1 };

static inline CodeWidth code_width(int bits) {
  return bits == 4 ? CodeWidth::kNibble : bits < 4 ? CodeWidth::kNarrow : CodeWidth::kWide;
}

namespace {

// Constants that take a block of 128 codes apart. A byte permutation brings the 4 codes of a lane
// into a dword, a multi-shift takes them out of it.
struct CodeDecoder {
  __m512i low_bytes, high_bytes;    // indices of the permutation
  __m512i low_shifts, high_shifts;  // bit positions in each qword
  __m512i mask;                     // the bits of a code
  int64_t block_bytes;

  explicit CodeDecoder(int bits) : block_bytes(kPackedBlock / 8 * bits) {
    alignas(64) uint8_t bytes[2][64];
    alignas(64) uint8_t shifts[2][64];
    for (int half = 0; half < 2; ++half) {
      const int first_bit = half * 4 * bits;
      for (int i = 0; i < 64; ++i) {
        bytes[half][i] = static_cast<uint8_t>(i / 4 * bits + first_bit / 8 + i % 4);
        shifts[half][i] = static_cast<uint8_t>(i / 4 % 2 * 32 + first_bit % 8 + i % 4 * bits);
      }
    }
    low_bytes = _mm512_load_si512(bytes[0]);
    high_bytes = _mm512_load_si512(bytes[1]);
    low_shifts = _mm512_load_si512(shifts[0]);
    high_shifts = _mm512_load_si512(shifts[1]);
    mask = _mm512_set1_epi8(static_cast<char>((1 << bits) - 1));
  }
};

}  // namespace

// 12 + twice the value of each E2M1 code.
static inline __m512i e2m1_codes(__m512i nibbles) {
  const __m128i table = _mm_setr_epi8(12, 13, 14, 15, 16, 18, 20, 24, 12, 11, 10, 9, 8, 6, 4, 0);
  return _mm512_shuffle_epi8(_mm512_broadcast_i32x4(table), nibbles);
}

static inline __mmask64 byte_mask(int64_t count) {
  return count >= 64 ? ~__mmask64{0} : count <= 0 ? 0 : (__mmask64{1} << count) - 1;
}

// Codes of one block. `bytes`: how many of the block's bytes exist; the rest read as 0.
template <CodeWidth width>
static inline CodeHalves load_codes(const uint8_t* data, int64_t bytes,
                                    const CodeDecoder& decoder) {
  if constexpr (width == CodeWidth::kNibble || width == CodeWidth::kE2M1) {
    const __m512i packed =
        bytes >= 64 ? _mm512_loadu_si512(data) : _mm512_maskz_loadu_epi8(byte_mask(bytes), data);
    const __m512i low = _mm512_and_si512(packed, decoder.mask);
    const __m512i high = _mm512_and_si512(_mm512_srli_epi16(packed, 4), decoder.mask);
    if constexpr (width == CodeWidth::kE2M1) return {e2m1_codes(low), e2m1_codes(high)};
    return {low, high};
  } else {
    const __m512i first = _mm512_maskz_loadu_epi8(byte_mask(bytes), data);
    __m512i low;
    __m512i high;
    if constexpr (width == CodeWidth::kNarrow) {
      low = _mm512_permutexvar_epi8(decoder.low_bytes, first);
      high = _mm512_permutexvar_epi8(decoder.high_bytes, first);
    } else {
      const __m512i second = _mm512_maskz_loadu_epi8(byte_mask(bytes - 64), data + 64);
      low = _mm512_permutex2var_epi8(first, decoder.low_bytes, second);
      high = _mm512_permutex2var_epi8(first, decoder.high_bytes, second);
    }
    low = _mm512_multishift_epi64_epi8(decoder.low_shifts, low);
    high = _mm512_multishift_epi64_epi8(decoder.high_shifts, high);
    return {_mm512_and_si512(low, decoder.mask), _mm512_and_si512(high, decoder.mask)};
  }
}

}  // namespace motley
