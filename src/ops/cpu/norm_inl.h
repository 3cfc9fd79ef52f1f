// Kernels of ops/norm.h and the weighted sum of experts. Included after math_inl.h.
#pragma once

namespace motley {
namespace {

// Four running sums, so that the latency of the adds does not bind.
inline float sum_of_squares(const float* x, int64_t dim) {
  Vec sums[4] = {zero(), zero(), zero(), zero()};
  int64_t i = 0;
  for (; i + 4 * kLanes <= dim; i += 4 * kLanes) {
    for (int j = 0; j < 4; ++j) {
      const Vec v = load(x + i + j * kLanes);
      sums[j] = fma(v, v, sums[j]);
    }
  }
  for (; i < dim; i += kLanes) {
    const Vec v = load_upto(x + i, dim - i);
    sums[0] = fma(v, v, sums[0]);
  }
  return reduce_add(add(add(sums[0], sums[1]), add(sums[2], sums[3])));
}

inline float inverse_rms(const float* x, int64_t dim, float epsilon) {
  const float mean = sum_of_squares(x, dim) / static_cast<float>(dim);
  return 1.0f / __builtin_sqrtf(mean + epsilon);
}

void rms_norm(const float* x, const float* weight, int64_t dim, float epsilon, float offset,
              float* y) {
  const Vec scale = set1(inverse_rms(x, dim, epsilon));
  const Vec shift = set1(offset);
  for (int64_t i = 0; i < dim; i += kLanes) {
    const int64_t n = dim - i;
    const Vec w = add(load_upto(weight + i, n), shift);
    store_upto(y + i, mul(mul(load_upto(x + i, n), scale), w), n);
  }
}

void gated_rms_norm(const float* x, const float* gate, const float* weight, int64_t dim,
                    float epsilon, float offset, float* y) {
  const Vec scale = set1(inverse_rms(x, dim, epsilon));
  const Vec shift = set1(offset);
  for (int64_t i = 0; i < dim; i += kLanes) {
    const int64_t n = dim - i;
    const Vec w = add(load_upto(weight + i, n), shift);
    const Vec normed = mul(mul(load_upto(x + i, n), scale), w);
    store_upto(y + i, mul(normed, silu_vec(load_upto(gate + i, n))), n);
  }
}

void add_rows(const float* x, int64_t n, float* y) {
  for (int64_t i = 0; i < n; i += kLanes) {
    store_upto(y + i, add(load_upto(y + i, n - i), load_upto(x + i, n - i)), n - i);
  }
}

void silu_multiply(const float* gate, const float* up, int64_t n, float limit, float* y) {
  const Vec high = set1(limit);
  const Vec low = set1(-limit);
  for (int64_t i = 0; i < n; i += kLanes) {
    // A NaN passes: it compares false.
    const Vec g = load_upto(gate + i, n - i);
    const Vec u = load_upto(up + i, n - i);
    const Vec below = select_less(high, u, high, u);
    const Vec bounded = select_less(below, low, low, below);
    store_upto(y + i, mul(silu_vec(select_less(high, g, high, g)), bounded), n - i);
  }
}

void sigmoid_multiply(const float* gate, int64_t n, float* y) {
  for (int64_t i = 0; i < n; i += kLanes) {
    const Vec g = sigmoid_vec(load_upto(gate + i, n - i));
    store_upto(y + i, mul(load_upto(y + i, n - i), g), n - i);
  }
}

void sigmoid_scale(float gate, int64_t n, float* y) {
  const Vec g = sigmoid_vec(set1(gate));
  for (int64_t i = 0; i < n; i += kLanes) {
    store_upto(y + i, mul(load_upto(y + i, n - i), g), n - i);
  }
}

template <Vec (*function)(Vec)>
void map(const float* x, int64_t n, float* y) {
  for (int64_t i = 0; i < n; i += kLanes) {
    store_upto(y + i, function(load_upto(x + i, n - i)), n - i);
  }
}

void combine(const float* x, int64_t x_stride, const float* weights, int64_t slots,
             const float* shared, int64_t n, float* y) {
  for (int64_t i = 0; i < n; i += kLanes) {
    Vec sum = zero();
    for (int64_t slot = 0; slot < slots; ++slot) {
      sum = fma(set1(weights[slot]), load_upto(x + slot * x_stride + i, n - i), sum);
    }
    if (shared != nullptr) sum = add(sum, load_upto(shared + i, n - i));
    store_upto(y + i, sum, n - i);
  }
}

}  // namespace
}  // namespace motley
