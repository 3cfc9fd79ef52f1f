#include <cmath>

#include "ops/reference/reference_math.h"
#include "ops/reference/reference_ops.h"

namespace motley {
namespace {

double inverse_rms(const double* x, int64_t dim, double epsilon) {
  double sum = 0;
  for (int64_t i = 0; i < dim; ++i) sum += x[i] * x[i];
  return 1.0 / std::sqrt(sum / static_cast<double>(dim) + epsilon);
}

void rms_norm(Stream&, const ConstTensorView& x, const ConstTensorView& weight,
              RmsNormParams params, const TensorView& y) {
  const float* w = weight.as<float>();
  for (int64_t r = 0; r < x.rows(); ++r) {
    const double* in = x.row<double>(r);
    double* out = y.row<double>(r);
    const double scale = inverse_rms(in, x.cols(), params.epsilon);
    for (int64_t i = 0; i < x.cols(); ++i) {
      out[i] = in[i] * scale * (double{w[i]} + double{params.weight_offset});
    }
  }
}

void gated_rms_norm(Stream&, const ConstTensorView& x, const ConstTensorView& gate,
                    const ConstTensorView& weight, RmsNormParams params, const TensorView& y) {
  const float* w = weight.as<float>();
  const int64_t dim = weight.shape.elements();
  for (int64_t r = 0; r < x.rows(); ++r) {
    for (int64_t start = 0; start < x.cols(); start += dim) {
      const double* in = x.row<double>(r) + start;
      const double* g = gate.row<double>(r) + start;
      double* out = y.row<double>(r) + start;
      const double scale = inverse_rms(in, dim, params.epsilon);
      for (int64_t i = 0; i < dim; ++i) {
        out[i] =
            in[i] * scale * (double{w[i]} + double{params.weight_offset}) * reference_silu(g[i]);
      }
    }
  }
}

void add(Stream&, const ConstTensorView& x, const TensorView& y) {
  for (int64_t r = 0; r < x.rows(); ++r) {
    for (int64_t i = 0; i < x.cols(); ++i) y.row<double>(r)[i] += x.row<double>(r)[i];
  }
}

void silu_multiply(Stream&, const ConstTensorView& gate, const ConstTensorView& up,
                   SwigluParams params, const TensorView& y) {
  for (int64_t r = 0; r < gate.rows(); ++r) {
    for (int64_t i = 0; i < gate.cols(); ++i) {
      y.row<double>(r)[i] = reference_swiglu(gate.row<double>(r)[i], up.row<double>(r)[i], params);
    }
  }
}

void sigmoid_multiply(Stream&, const ConstTensorView& gate, const TensorView& y) {
  const bool strided_heads = gate.shape.rank() == 3;
  const int64_t width = strided_heads ? y.shape[2] : y.cols();
  for (int64_t r = 0; r < y.rows(); ++r) {
    const double* g = gate.row<double>(r);
    for (int64_t i = 0; i < y.cols(); ++i) {
      const int64_t head_start = strided_heads ? i / width * gate.shape[2] : 0;
      const double gate_value = gate.cols() == 1 ? g[0] : g[head_start + i % width];
      y.row<double>(r)[i] *= reference_sigmoid(gate_value);
    }
  }
}

void add_bias(Stream&, const ConstTensorView& bias, const TensorView& y) {
  for (int64_t r = 0; r < y.rows(); ++r) {
    for (int64_t i = 0; i < y.cols(); ++i) y.row<double>(r)[i] += double{bias.as<float>()[i]};
  }
}

void zero_rows(Stream&, std::span<const int32_t> rows, const TensorView& y) {
  for (const int32_t r : rows) {
    for (int64_t i = 0; i < y.cols(); ++i) y.row<double>(r)[i] = 0;
  }
}

}  // namespace

NormOps reference_norm_ops() {
  return {rms_norm, gated_rms_norm, add, silu_multiply, sigmoid_multiply, add_bias, zero_rows};
}

}  // namespace motley
