// Small matrix products that attention and the chunked delta rule share. Included after norm_inl.h.
//
// Every element is one chain of operations in a fixed order, whatever tile computes it, so tiles
// may be cut freely without changing a bit.
#pragma once

namespace motley {
namespace {

static_assert(kTilePairs * kTileKeys % kLanes == 0, "sums of a tile fill whole vectors");

// scores[p * stride + j] = a[p] . b[j] for kTilePairs rows of a and kTileKeys rows of b; rows are
// `dim` long (a multiple of kLanes), a_stride and b_stride apart. Lanes run along dim.
inline void dot_tile(const float* a, int64_t a_stride, const float* b, int64_t b_stride,
                     int64_t dim, float* scores, int64_t stride) {
  Vec sums[kTilePairs * kTileKeys];
  for (Vec& sum : sums) sum = zero();
  for (int64_t i = 0; i < dim; i += kLanes) {
    Vec rows[kTileKeys];
    for (int j = 0; j < kTileKeys; ++j) rows[j] = load(b + j * b_stride + i);
    for (int p = 0; p < kTilePairs; ++p) {
      const Vec x = load(a + p * a_stride + i);
      for (int j = 0; j < kTileKeys; ++j) {
        sums[p * kTileKeys + j] = fma(x, rows[j], sums[p * kTileKeys + j]);
      }
    }
  }
  float totals[kTilePairs * kTileKeys];
  for (int s = 0; s < kTilePairs * kTileKeys; s += kLanes) {
    store(totals + s, reduce_add_each(sums + s));
  }
  for (int p = 0; p < kTilePairs; ++p) {
    __builtin_memcpy(scores + p * stride, totals + p * kTileKeys, kTileKeys * sizeof(float));
  }
}

// c[p, :] = fma over j = 0 .. terms - 1, in order, of a[p * a_stride + j * a_step] * b[j, :],
// starting from scale[p] * c[p, :] (or from c itself without scale). kRows rows, kWidth vectors.
template <int kRows, int kWidth>
inline void accumulate_tile(const float* a, int64_t a_stride, int64_t a_step, const float* b,
                            int64_t b_stride, int64_t terms, const float* scale, float* c,
                            int64_t c_stride) {
  Vec sums[kRows][kWidth];
  for (int p = 0; p < kRows; ++p) {
    for (int v = 0; v < kWidth; ++v) {
      sums[p][v] = load(c + p * c_stride + v * kLanes);
      if (scale != nullptr) sums[p][v] = mul(sums[p][v], set1(scale[p]));
    }
  }
  for (int64_t j = 0; j < terms; ++j) {
    Vec row[kWidth];
    for (int v = 0; v < kWidth; ++v) row[v] = load(b + j * b_stride + v * kLanes);
    for (int p = 0; p < kRows; ++p) {
      const Vec x = set1(a[p * a_stride + j * a_step]);
      for (int v = 0; v < kWidth; ++v) sums[p][v] = fma(x, row[v], sums[p][v]);
    }
  }
  for (int p = 0; p < kRows; ++p) {
    for (int v = 0; v < kWidth; ++v) store(c + p * c_stride + v * kLanes, sums[p][v]);
  }
}

// The same for kRows rows and any width (a multiple of kLanes).
template <int kRows>
inline void accumulate_rows(const float* a, int64_t a_stride, int64_t a_step, const float* b,
                            int64_t b_stride, int64_t terms, const float* scale, float* c,
                            int64_t c_stride, int64_t width) {
  constexpr int kWide = kRows == 1 ? 8 : 4;
  int64_t i = 0;
  for (; i + kWide * kLanes <= width; i += kWide * kLanes) {
    accumulate_tile<kRows, kWide>(a, a_stride, a_step, b + i, b_stride, terms, scale, c + i,
                                  c_stride);
  }
  for (; i < width; i += kLanes) {
    accumulate_tile<kRows, 1>(a, a_stride, a_step, b + i, b_stride, terms, scale, c + i, c_stride);
  }
}

// Rows p of c become scale[p] c[p] + sum over j < terms[p] of a[p, j] b[j], for kTilePairs rows
// that need not have the same number of terms.
inline void accumulate_ragged(const float* a, int64_t a_stride, const float* b, int64_t b_stride,
                              const int64_t* terms, const float* scale, float* c, int64_t c_stride,
                              int64_t width) {
  int64_t common = terms[0];
  for (int p = 1; p < kTilePairs; ++p) common = terms[p] < common ? terms[p] : common;
  accumulate_rows<kTilePairs>(a, a_stride, 1, b, b_stride, common, scale, c, c_stride, width);
  for (int p = 0; p < kTilePairs; ++p) {
    if (terms[p] == common) continue;
    accumulate_rows<1>(a + p * a_stride + common, 0, 1, b + common * b_stride, b_stride,
                       terms[p] - common, nullptr, c + p * c_stride, c_stride, width);
  }
}

}  // namespace
}  // namespace motley
