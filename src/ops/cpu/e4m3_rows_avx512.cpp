// E4M3 weights: lanes along the contraction dimension, a tile of 4 rows by up to 4 tokens. A code
// is a half of 2^-8 the value once its sign has been moved.
#include "ops/cpu/affine_avx512.h"

namespace motley {
namespace {

constexpr int kTileRows = 4;

template <int kTokens>
using Sums = __m512[kTileRows][kTokens];

template <int kTokens>
void clear(Sums<kTokens>& sums) {
  for (auto& row : sums) {
    for (__m512& sum : row) sum = _mm512_setzero_ps();
  }
}

float scale_of(const uint8_t* line, ScalarFormat format, int64_t index) {
  return _mm512_cvtss_f32(load_scalars(line + index * scalar_bytes(format), format, 1)) * 256.0f;
}

// 32 columns, the first 16 before the others.
template <int kTokens>
void add_step(const uint8_t* const (&rows)[kTileRows], const float* const (&x)[kTokens], int64_t k,
              Sums<kTokens>& sums) {
  __m512 first[kTokens];
  __m512 second[kTokens];
  for (int t = 0; t < kTokens; ++t) {
    first[t] = _mm512_loadu_ps(x[t] + k);
    second[t] = _mm512_loadu_ps(x[t] + k + 16);
  }
  for (int r = 0; r < kTileRows; ++r) {
    const auto* data = reinterpret_cast<const __m256i*>(rows[r] + k);
    _mm_prefetch(rows[r] + k + 2048, _MM_HINT_T0);
    // The sign comes to the top bit and the one below, which it leaves again.
    const __m512i codes = _mm512_slli_epi16(_mm512_cvtepi8_epi16(_mm256_loadu_si256(data)), 7);
    const __m512i halves = _mm512_and_si512(codes, _mm512_set1_epi16(static_cast<int16_t>(0xBFFF)));
    const __m512 low = _mm512_cvtph_ps(_mm512_castsi512_si256(halves));
    const __m512 high = _mm512_cvtph_ps(_mm512_extracti64x4_epi64(halves, 1));
    for (int t = 0; t < kTokens; ++t) {
      sums[r][t] = _mm512_fmadd_ps(low, first[t], sums[r][t]);
      sums[r][t] = _mm512_fmadd_ps(high, second[t], sums[r][t]);
    }
  }
}

// The first columns of 16, the others 0.
template <int kTokens>
void add_part(const uint8_t* const (&rows)[kTileRows], const float* const (&x)[kTokens], int64_t k,
              __mmask16 mask, Sums<kTokens>& sums) {
  for (int r = 0; r < kTileRows; ++r) {
    const __m128i data = _mm_maskz_loadu_epi8(mask, rows[r] + k);
    const __m256i codes = _mm256_slli_epi16(_mm256_cvtepi8_epi16(data), 7);
    const __m512 w =
        _mm512_cvtph_ps(_mm256_and_si256(codes, _mm256_set1_epi16(static_cast<int16_t>(0xBFFF))));
    for (int t = 0; t < kTokens; ++t) {
      sums[r][t] = _mm512_fmadd_ps(w, _mm512_maskz_loadu_ps(mask, x[t] + k), sums[r][t]);
    }
  }
}

// 4 rows (those that do not exist repeat the last) by kTokens tokens, 16 lanes each.
template <int kTokens>
void tile_lanes(const FloatRows& weights, int64_t first, const float* const (&x)[kTokens],
                float (&lanes)[kTokens][16][16], int64_t lane_row) {
  const uint8_t* rows[kTileRows];
  const uint8_t* scales[kTileRows];
  for (int64_t r = 0; r < kTileRows; ++r) {
    const int64_t row = first + r < weights.rows ? first + r : weights.rows - 1;
    rows[r] = weights.data + row * weights.stride;
    scales[r] = scale_line(weights, row);
  }
  Sums<kTokens> totals;
  clear<kTokens>(totals);
  for (int64_t begin = 0, block = 0; begin < weights.cols; begin += weights.block_cols, ++block) {
    const int64_t rest = weights.cols - begin;
    const int64_t end = begin + (rest < weights.block_cols ? rest : weights.block_cols);
    Sums<kTokens> sums;
    clear<kTokens>(sums);
    int64_t k = begin;
    for (; k + 32 <= end; k += 32) add_step<kTokens>(rows, x, k, sums);
    for (; k < end; k += 16) add_part<kTokens>(rows, x, k, row_mask(end - k), sums);
    for (int r = 0; r < kTileRows; ++r) {
      const __m512 scale = _mm512_set1_ps(scale_of(scales[r], weights.scale_format, block));
      for (int t = 0; t < kTokens; ++t) {
        totals[r][t] = _mm512_fmadd_ps(sums[r][t], scale, totals[r][t]);
      }
    }
  }
  for (int r = 0; r < kTileRows; ++r) {
    for (int t = 0; t < kTokens; ++t) _mm512_store_ps(lanes[t][lane_row + r], totals[r][t]);
  }
}

template <int kTokens>
void multiply_tokens(const FloatRows& weights, const FloatTokens& tokens, int64_t first_token,
                     int64_t first_row) {
  const float* x[kTokens];
  for (int t = 0; t < kTokens; ++t) x[t] = tokens.x[first_token + t];
  alignas(64) float lanes[kTokens][16][16] = {};
  const int64_t rows = weights.rows - first_row < 16 ? weights.rows - first_row : 16;
  for (int64_t r = 0; r < rows; r += kTileRows) {
    tile_lanes<kTokens>(weights, first_row + r, x, lanes, r);
  }
  for (int t = 0; t < kTokens; ++t) {
    _mm512_mask_storeu_ps(tokens.y[first_token + t] + tokens.y_offset + first_row, row_mask(rows),
                          sum_lanes(lanes[t]));
  }
}

}  // namespace

void e4m3_rows_avx512(const FloatRows& weights, const FloatTokens& tokens) {
  for (int64_t row = 0; row < weights.rows; row += 16) {
    int64_t t = 0;
    for (; t + 4 <= tokens.count; t += 4) multiply_tokens<4>(weights, tokens, t, row);
    for (; t < tokens.count; ++t) multiply_tokens<1>(weights, tokens, t, row);
  }
}

}  // namespace motley
