#include <cmath>
#include <vector>

#include "ops/reference/reference_math.h"
#include "ops/reference/reference_ops.h"

namespace motley {
namespace {

std::vector<double> projections(const double* f, const HyperWeights& weights, int64_t dim,
                                double norm_epsilon) {
  double sum = 0;
  for (int64_t i = 0; i < dim; ++i) sum += f[i] * f[i];
  const double scale = 1.0 / std::sqrt(sum / static_cast<double>(dim) + norm_epsilon);
  std::vector<double> m;
  for (int64_t row = 0; row < weights.fn.rows(); ++row) {
    const float* w = weights.fn.row<float>(row);
    double dot = 0;
    for (int64_t i = 0; i < dim; ++i) dot += double{w[i]} * f[i] * scale;
    m.push_back(dot);
  }
  return m;
}

// C [n, n] in place: Sinkhorn's alternation, columns first.
void sinkhorn(double* c, int n, int iterations, double epsilon) {
  const auto normalise = [&](int64_t line_step, int64_t item_step) {
    for (int line = 0; line < n; ++line) {
      double sum = epsilon;
      for (int i = 0; i < n; ++i) sum += c[line * line_step + i * item_step];
      for (int i = 0; i < n; ++i) c[line * line_step + i * item_step] /= sum;
    }
  };
  for (int iteration = 0; iteration < iterations; ++iteration) {
    if (iteration > 0) normalise(n, 1);
    normalise(1, n);
  }
}

void mix(Stream&, const ConstTensorView& streams, const HyperWeights& weights,
         const HyperParams& params, const TensorView& coefficients, const TensorView& x) {
  const int n = params.streams;
  const float* base = weights.base.as<float>();
  const float* scale = weights.scale.as<float>();
  const double epsilon = params.epsilon;
  for (int64_t r = 0; r < streams.rows(); ++r) {
    const double* f = streams.row<double>(r);
    const std::vector<double> m = projections(f, weights, streams.cols(), params.norm_epsilon);
    double* out = coefficients.row<double>(r);
    for (int i = 0; i < n; ++i) {
      out[i] = reference_sigmoid(m[static_cast<size_t>(i)] * double{scale[0]} + double{base[i]}) +
               epsilon;
      out[n + i] =
          double{params.post_scale} *
          reference_sigmoid(m[static_cast<size_t>(n + i)] * double{scale[1]} + double{base[n + i]});
    }
    double* c = out + 2 * n;
    for (int i = 0; i < n; ++i) {
      double sum = 0;
      for (int j = 0; j < n; ++j) {
        const int at = 2 * n + i * n + j;
        c[i * n + j] = m[static_cast<size_t>(at)] * double{scale[2]} + double{base[at]};
      }
      const double highest = *std::max_element(c + i * n, c + i * n + n);
      for (int j = 0; j < n; ++j) sum += c[i * n + j] = std::exp(c[i * n + j] - highest);
      for (int j = 0; j < n; ++j) c[i * n + j] = c[i * n + j] / sum + epsilon;
    }
    sinkhorn(c, n, params.sinkhorn_iterations, epsilon);
    for (int64_t col = 0; col < x.cols(); ++col) {
      double sum = 0;
      for (int i = 0; i < n; ++i) sum += out[i] * f[i * x.cols() + col];
      x.row<double>(r)[col] = sum;
    }
  }
}

void merge(Stream&, const ConstTensorView& y, const ConstTensorView& coefficients,
           const TensorView& streams) {
  const auto n = static_cast<int>(streams.shape[1]);
  const int64_t hidden = y.cols();
  for (int64_t r = 0; r < y.rows(); ++r) {
    const double* post = coefficients.row<double>(r) + n;
    const double* c = post + n;
    double* out = streams.row<double>(r);
    const std::vector<double> before(out, out + n * hidden);
    for (int j = 0; j < n; ++j) {
      for (int64_t col = 0; col < hidden; ++col) {
        double sum = post[j] * y.row<double>(r)[col];
        for (int i = 0; i < n; ++i) {
          sum += c[i * n + j] * before[static_cast<size_t>(i * hidden + col)];
        }
        out[j * hidden + col] = sum;
      }
    }
  }
}

void spread(Stream&, const ConstTensorView& x, const TensorView& streams) {
  for (int64_t r = 0; r < x.rows(); ++r) {
    for (int64_t i = 0; i < streams.cols(); ++i) {
      streams.row<double>(r)[i] = x.row<double>(r)[i % x.cols()];
    }
  }
}

void mean(Stream&, const ConstTensorView& streams, const TensorView& y) {
  const int64_t n = streams.shape[1];
  for (int64_t r = 0; r < y.rows(); ++r) {
    for (int64_t col = 0; col < y.cols(); ++col) {
      double sum = 0;
      for (int64_t i = 0; i < n; ++i) sum += streams.row<double>(r)[i * y.cols() + col];
      y.row<double>(r)[col] = sum / static_cast<double>(n);
    }
  }
}

}  // namespace

HyperOps reference_hyper_ops() {
  return {mix, merge, spread, mean};
}

}  // namespace motley
