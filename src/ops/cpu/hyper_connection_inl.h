// Kernels of the residual streams. Included after tile_inl.h.
#pragma once

namespace motley {
namespace {

inline float tail_dot(const float* a, const float* b, int64_t begin, int64_t end) {
  float sum = 0.0f;
  for (int64_t i = begin; i < end; ++i) sum += a[i] * b[i];
  return sum;
}

// y[t, o] = x[t] . weights[o] for `rows` rows of x. Each dot is one chain per lane, whatever rows
// share the pass over the weights: a tile with rows missing takes the last one again.
void hyper_dots(const float* x, int64_t x_stride, int64_t rows, const float* weights,
                int64_t outputs, int64_t dim, float* y) {
  const int64_t whole = dim / kLanes * kLanes;
  float tile[kTilePairs * kTileKeys];
  for (int64_t t = 0; t < rows;) {
    const bool full_rows = t + kTilePairs <= rows;
    const int64_t taken = full_rows ? kTilePairs : 1;
    for (int64_t o = 0; o < outputs;) {
      const bool full_outputs = o + kTileKeys <= outputs;
      const int64_t made = full_outputs ? kTileKeys : 1;
      dot_tile(x + t * x_stride, full_rows ? x_stride : 0, weights + o * dim,
               full_outputs ? dim : 0, whole, tile, kTileKeys);
      for (int64_t p = 0; p < taken; ++p) {
        for (int64_t j = 0; j < made; ++j) {
          y[(t + p) * outputs + o + j] =
              tile[p * kTileKeys + j] +
              tail_dot(x + (t + p) * x_stride, weights + (o + j) * dim, whole, dim);
        }
      }
      o += made;
    }
    t += taken;
  }
}

// R_j <- post_j y + sum_i C_ij R_i for n streams of `hidden` elements one after the other; n at
// most 8 (kMostStreams of ops/hyper_connection.h).
void hyper_merge(const float* y, const float* post, const float* c, int64_t n, int64_t hidden,
                 float* streams) {
  for (int64_t i = 0; i < hidden; i += kLanes) {
    Vec before[8];
    for (int64_t s = 0; s < n; ++s) before[s] = load_upto(streams + s * hidden + i, hidden - i);
    const Vec update = load_upto(y + i, hidden - i);
    for (int64_t j = 0; j < n; ++j) {
      Vec sum = mul(set1(post[j]), update);
      for (int64_t s = 0; s < n; ++s) sum = fma(set1(c[s * n + j]), before[s], sum);
      store_upto(streams + j * hidden + i, sum, hidden - i);
    }
  }
}

float mean_square(const float* x, int64_t dim) {
  return sum_of_squares(x, dim) / static_cast<float>(dim);
}

}  // namespace
}  // namespace motley
