#include <cmath>

#include "ops/cpu/cpu_ops.h"

namespace motley {
namespace {

// C [n, n] in place: Sinkhorn's alternation, columns first.
void sinkhorn(float* c, int n, int iterations, float epsilon) {
  const auto normalise = [&](int line_step, int item_step) {
    for (int line = 0; line < n; ++line) {
      float sum = 0.0f;
      for (int i = 0; i < n; ++i) sum += c[line * line_step + i * item_step];
      for (int i = 0; i < n; ++i) c[line * line_step + i * item_step] /= sum + epsilon;
    }
  };
  for (int iteration = 0; iteration < iterations; ++iteration) {
    if (iteration > 0) normalise(n, 1);
    normalise(1, n);
  }
}

// m, in place, becomes pre, post and C of one row.
void finish_coefficients(const CpuKernels& kernels, const HyperWeights& weights,
                         const HyperParams& params, float inverse_rms, float* m) {
  const int n = params.streams;
  const float* base = weights.base.as<float>();
  const float* scale = weights.scale.as<float>();
  for (int64_t i = 0; i < params.coefficients(); ++i) {
    const float factor = scale[i < n ? 0 : i < 2 * n ? 1 : 2];
    m[i] = m[i] * inverse_rms * factor + base[i];
  }
  kernels.sigmoid(m, 2 * n, m);
  for (int i = 0; i < n; ++i) {
    m[i] += params.epsilon;
    m[n + i] *= params.post_scale;
  }
  float* c = m + 2 * n;
  for (int i = 0; i < n; ++i) {
    float* row = c + i * n;
    const float highest = *std::max_element(row, row + n);
    for (int j = 0; j < n; ++j) row[j] -= highest;
    kernels.exp(row, n, row);
    float sum = 0.0f;
    for (int j = 0; j < n; ++j) sum += row[j];
    for (int j = 0; j < n; ++j) row[j] = row[j] / sum + params.epsilon;
  }
  sinkhorn(c, n, params.sinkhorn_iterations, params.epsilon);
}

}  // namespace

void cpu_hyper_mix(const CpuKernels& kernels, Stream& stream, const ConstTensorView& streams,
                   const HyperWeights& weights, const HyperParams& params,
                   const TensorView& coefficients, const TensorView& x) {
  const int64_t n = params.streams;
  const int64_t dim = streams.cols();
  const int64_t outputs = params.coefficients();
  MOTLEY_CHECK(n >= 1 && n <= kMostStreams && dim == n * x.cols() && streams.rows() == x.rows() &&
                   coefficients.cols() == outputs && coefficients.is_contiguous(),
               "streams, coefficients and their mix must match");
  MOTLEY_CHECK(weights.fn.shape.elements() == outputs * dim &&
                   weights.base.shape.elements() == outputs && weights.scale.shape.elements() == 3,
               "weights must match the streams");
  stream.threads().parallel_for(
      x.rows(), row_grain(outputs * dim), [&](int, int64_t begin, int64_t end) {
        float* m = coefficients.row<float>(begin);
        kernels.hyper_dots(streams.row<float>(begin), streams.row_stride, end - begin,
                           weights.fn.as<float>(), outputs, dim, m);
        for (int64_t r = begin; r < end; ++r, m += outputs) {
          const float* row = streams.row<float>(r);
          const float scale = 1.0f / std::sqrt(kernels.mean_square(row, dim) + params.norm_epsilon);
          finish_coefficients(kernels, weights, params, scale, m);
          kernels.combine(row, x.cols(), m, n, nullptr, x.cols(), x.row<float>(r));
        }
      });
}

void cpu_hyper_merge(const CpuKernels& kernels, Stream& stream, const ConstTensorView& y,
                     const ConstTensorView& coefficients, const TensorView& streams) {
  const int64_t n = streams.shape[1];
  MOTLEY_CHECK(n <= kMostStreams && streams.cols() == n * y.cols() && streams.rows() == y.rows() &&
                   coefficients.cols() == n * (2 + n),
               "streams, coefficients and the update must match");
  stream.threads().parallel_for(
      y.rows(), row_grain(n * streams.cols()), [&](int, int64_t begin, int64_t end) {
        for (int64_t r = begin; r < end; ++r) {
          const float* post = coefficients.row<float>(r) + n;
          kernels.hyper_merge(y.row<float>(r), post, post + n, n, y.cols(), streams.row<float>(r));
        }
      });
}

void cpu_hyper_spread(const CpuKernels&, Stream& stream, const ConstTensorView& x,
                      const TensorView& streams) {
  const int64_t n = streams.shape[1];
  MOTLEY_CHECK(streams.cols() == n * x.cols() && streams.rows() == x.rows(),
               "streams must match their source");
  stream.threads().parallel_for(
      x.rows(), row_grain(streams.cols()), [&](int, int64_t begin, int64_t end) {
        for (int64_t r = begin; r < end; ++r) {
          for (int64_t s = 0; s < n; ++s) {
            std::copy_n(x.row<float>(r), x.cols(), streams.row<float>(r) + s * x.cols());
          }
        }
      });
}

void cpu_hyper_mean(const CpuKernels& kernels, Stream& stream, const ConstTensorView& streams,
                    const TensorView& y) {
  const int64_t n = streams.shape[1];
  MOTLEY_CHECK(n <= kMostStreams && streams.cols() == n * y.cols() && streams.rows() == y.rows(),
               "streams must match their mean");
  float weights[kMostStreams];
  for (float& weight : weights) weight = 1.0f / static_cast<float>(n);
  stream.threads().parallel_for(y.rows(), row_grain(streams.cols()),
                                [&](int, int64_t begin, int64_t end) {
                                  for (int64_t r = begin; r < end; ++r) {
                                    kernels.combine(streams.row<float>(r), y.cols(), weights, n,
                                                    nullptr, y.cols(), y.row<float>(r));
                                  }
                                });
}

}  // namespace motley
