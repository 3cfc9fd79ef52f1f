// Float weights: lanes along the contraction dimension, a tile of 4 rows by up to 4 tokens.
#include "ops/cpu/affine_avx512.h"

namespace motley {
namespace {

constexpr int kTileRows = 4;

template <ScalarFormat format>
__m512 load_weights(const uint8_t* row, int64_t k, __mmask16 mask) {
  if constexpr (format == ScalarFormat::kF32) return _mm512_maskz_loadu_ps(mask, row + 4 * k);
  const __m256i bits = _mm256_maskz_loadu_epi16(mask, row + 2 * k);
  if constexpr (format == ScalarFormat::kF16) return _mm512_cvtph_ps(bits);
  return _mm512_castsi512_ps(_mm512_slli_epi32(_mm512_cvtepu16_epi32(bits), 16));
}

template <ScalarFormat format, int kTokens>
void add_step(const uint8_t* const (&rows)[kTileRows], const float* const (&x)[kTokens], int64_t k,
              __mmask16 mask, __m512 (&sums)[kTileRows][kTokens]) {
  __m512 values[kTokens];
  for (int t = 0; t < kTokens; ++t) values[t] = _mm512_maskz_loadu_ps(mask, x[t] + k);
  for (int r = 0; r < kTileRows; ++r) {
    const __m512 w = load_weights<format>(rows[r], k, mask);
    for (int t = 0; t < kTokens; ++t) sums[r][t] = _mm512_fmadd_ps(w, values[t], sums[r][t]);
  }
}

// 4 rows (those that do not exist repeat the last) by kTokens tokens, 16 lanes each.
template <ScalarFormat format, int kTokens>
void tile_lanes(const FloatRows& weights, int64_t first, const float* const (&x)[kTokens],
                float (&lanes)[kTokens][16][16], int64_t lane_row) {
  const uint8_t* rows[kTileRows];
  for (int64_t r = 0; r < kTileRows; ++r) {
    const int64_t row = first + r < weights.rows ? first + r : weights.rows - 1;
    rows[r] = weights.data + row * weights.stride;
  }
  __m512 sums[kTileRows][kTokens];
  for (auto& row : sums) {
    for (__m512& sum : row) sum = _mm512_setzero_ps();
  }
  int64_t k = 0;
  for (; k + 16 <= weights.cols; k += 16) add_step<format>(rows, x, k, 0xFFFF, sums);
  if (k < weights.cols) add_step<format>(rows, x, k, row_mask(weights.cols - k), sums);
  for (int r = 0; r < kTileRows; ++r) {
    for (int t = 0; t < kTokens; ++t) _mm512_store_ps(lanes[t][lane_row + r], sums[r][t]);
  }
}

template <ScalarFormat format, int kTokens>
void multiply_tokens(const FloatRows& weights, const FloatTokens& tokens, int64_t first_token,
                     int64_t first_row) {
  const float* x[kTokens];
  for (int t = 0; t < kTokens; ++t) x[t] = tokens.x[first_token + t];
  alignas(64) float lanes[kTokens][16][16] = {};
  const int64_t rows = weights.rows - first_row < 16 ? weights.rows - first_row : 16;
  for (int64_t r = 0; r < rows; r += kTileRows) {
    tile_lanes<format, kTokens>(weights, first_row + r, x, lanes, r);
  }
  for (int t = 0; t < kTokens; ++t) {
    _mm512_mask_storeu_ps(tokens.y[first_token + t] + tokens.y_offset + first_row, row_mask(rows),
                          sum_lanes(lanes[t]));
  }
}

template <ScalarFormat format>
void multiply(const FloatRows& weights, const FloatTokens& tokens) {
  for (int64_t row = 0; row < weights.rows; row += 16) {
    int64_t t = 0;
    for (; t + 4 <= tokens.count; t += 4) multiply_tokens<format, 4>(weights, tokens, t, row);
    for (; t < tokens.count; ++t) multiply_tokens<format, 1>(weights, tokens, t, row);
  }
}

}  // namespace

void float_rows_avx512(const FloatRows& weights, const FloatTokens& tokens, bool /*fast*/,
                       std::byte* /*scratch*/) {
  switch (weights.format) {
    case ScalarFormat::kF32:
      return multiply<ScalarFormat::kF32>(weights, tokens);
    case ScalarFormat::kF16:
      return multiply<ScalarFormat::kF16>(weights, tokens);
    case ScalarFormat::kBf16:
      return multiply<ScalarFormat::kBf16>(weights, tokens);
    case ScalarFormat::kE4M3:
      return e4m3_rows_avx512(weights, tokens);
    case ScalarFormat::kE8M0:
      return;  // of scales alone
  }
}

}  // namespace motley
