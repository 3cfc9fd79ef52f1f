// Kernels of ops/index.h, and of latents outside of the attention product. Included after
// attention_inl.h.
#pragma once

namespace motley {
namespace {

// Keys that are scored together: their vectors stay in the first-level cache for all heads.
constexpr int64_t kIndexKeys = 16;
static_assert(kIndexKeys % kLanes == 0 && kIndexKeys % kTileKeys == 0, "whole vectors and tiles");

void layer_norm(const float* x, const float* weight, const float* bias, int64_t dim, float epsilon,
                float* y) {
  Vec sum = zero();
  for (int64_t i = 0; i < dim; i += kLanes) sum = add(sum, load_upto(x + i, dim - i));
  const float mean = reduce_add(sum) / static_cast<float>(dim);
  for (int64_t i = 0; i < dim; i += kLanes) {
    store_upto(y + i, sub(load_upto(x + i, dim - i), set1(mean)), dim - i);
  }
  const Vec scale = set1(inverse_rms(y, dim, epsilon));
  for (int64_t i = 0; i < dim; i += kLanes) {
    const int64_t n = dim - i;
    const Vec scaled = mul(load_upto(y + i, n), scale);
    store_upto(y + i, fma(scaled, load_upto(weight + i, n), load_upto(bias + i, n)), n);
  }
}

// scores[k] = sum over the heads, in order, of w_h max(q_h . k, 0).
void index_scores(const IndexTask& task) {
  float dots[kTilePairs * kIndexKeys];
  for (int64_t first = 0; first < task.count; first += kIndexKeys) {
    Vec totals[kIndexKeys / kLanes];
    for (Vec& total : totals) total = zero();
    for (int64_t head = 0; head < task.heads; head += kTilePairs) {
      for (int64_t j = 0; j < kIndexKeys; j += kTileKeys) {
        dot_tile(task.q + head * task.padded_dim, task.padded_dim,
                 task.keys + (first + j) * task.padded_dim, task.padded_dim, task.padded_dim,
                 dots + j, kIndexKeys);
      }
      for (int p = 0; p < kTilePairs; ++p) {
        const Vec weight = set1(task.weights[head + p]);
        for (int64_t v = 0; v < kIndexKeys / kLanes; ++v) {
          const Vec dot = load(dots + p * kIndexKeys + v * kLanes);
          totals[v] = fma(weight, max(dot, zero()), totals[v]);
        }
      }
    }
    for (int64_t v = 0; v < kIndexKeys / kLanes; ++v) {
      const int64_t at = first + v * kLanes;
      store_upto(task.scores + at, totals[v], task.count - at);
    }
  }
}

void weighted_rows(const float* a, int64_t a_stride, int64_t rows, const float* b, int64_t b_stride,
                   int64_t terms, float* c, int64_t c_stride, int64_t width) {
  for (int64_t r = 0; r < rows; ++r) {
    for (int64_t i = 0; i < width; i += kLanes) store(c + r * c_stride + i, zero());
  }
  int64_t r = 0;
  for (; r + kTilePairs <= rows; r += kTilePairs) {
    accumulate_rows<kTilePairs>(a + r * a_stride, a_stride, 1, b, b_stride, terms, nullptr,
                                c + r * c_stride, c_stride, width);
  }
  for (; r < rows; ++r) {
    accumulate_rows<1>(a + r * a_stride, a_stride, 1, b, b_stride, terms, nullptr, c + r * c_stride,
                       c_stride, width);
  }
}

}  // namespace
}  // namespace motley
