#include "ops/cpu/cpu_ops.h"

namespace motley {
namespace {

void check_same_rows(const ConstTensorView& a, const ConstTensorView& b) {
  MOTLEY_CHECK(a.rows() == b.rows(), "both views need the same rows");
}

}  // namespace

void cpu_rms_norm(const CpuKernels& kernels, Stream& stream, const ConstTensorView& x,
                  const ConstTensorView& weight, RmsNormParams params, const TensorView& y) {
  check_same_rows(x, y);
  MOTLEY_CHECK(weight.shape.elements() == x.cols() && y.cols() == x.cols(),
               "one weight per column");
  const float* w = weight.as<float>();
  stream.threads().parallel_for(x.rows(), row_grain(x.cols()),
                                [&](int, int64_t begin, int64_t end) {
                                  for (int64_t r = begin; r < end; ++r) {
                                    kernels.rms_norm(x.row<float>(r), w, x.cols(), params.epsilon,
                                                     params.weight_offset, y.row<float>(r));
                                  }
                                });
}

void cpu_gated_rms_norm(const CpuKernels& kernels, Stream& stream, const ConstTensorView& x,
                        const ConstTensorView& gate, const ConstTensorView& weight,
                        RmsNormParams params, const TensorView& y) {
  check_same_rows(x, gate);
  check_same_rows(x, y);
  const float* w = weight.as<float>();
  const int64_t dim = weight.shape.elements();
  MOTLEY_CHECK(x.cols() % dim == 0 && gate.cols() == x.cols() && y.cols() == x.cols(),
               "whole heads in every view");
  stream.threads().parallel_for(
      x.rows(), row_grain(4 * x.cols()), [&](int, int64_t begin, int64_t end) {
        for (int64_t r = begin; r < end; ++r) {
          for (int64_t start = 0; start < x.cols(); start += dim) {
            kernels.gated_rms_norm(x.row<float>(r) + start, gate.row<float>(r) + start, w, dim,
                                   params.epsilon, params.weight_offset, y.row<float>(r) + start);
          }
        }
      });
}

void cpu_add(const CpuKernels& kernels, Stream& stream, const ConstTensorView& x,
             const TensorView& y) {
  check_same_rows(x, y);
  MOTLEY_CHECK(x.cols() == y.cols(), "both views need the same columns");
  stream.threads().parallel_for(x.rows(), row_grain(x.cols()),
                                [&](int, int64_t begin, int64_t end) {
                                  for (int64_t r = begin; r < end; ++r) {
                                    kernels.add(x.row<float>(r), x.cols(), y.row<float>(r));
                                  }
                                });
}

void cpu_silu_multiply(const CpuKernels& kernels, Stream& stream, const ConstTensorView& gate,
                       const ConstTensorView& up, SwigluParams params, const TensorView& y) {
  check_same_rows(gate, up);
  check_same_rows(gate, y);
  MOTLEY_CHECK(gate.cols() == up.cols() && gate.cols() == y.cols(), "same columns in every view");
  stream.threads().parallel_for(
      gate.rows(), row_grain(4 * gate.cols()), [&](int, int64_t begin, int64_t end) {
        for (int64_t r = begin; r < end; ++r) {
          kernels.silu_multiply(gate.row<float>(r), up.row<float>(r), gate.cols(), params.limit,
                                y.row<float>(r));
        }
      });
}

void cpu_sigmoid_multiply(const CpuKernels& kernels, Stream& stream, const ConstTensorView& gate,
                          const TensorView& y) {
  check_same_rows(gate, y);
  const bool has_strided_heads = gate.shape.rank() == 3;
  const int64_t heads = has_strided_heads ? gate.shape[1] : 1;
  const int64_t gate_stride = has_strided_heads ? gate.shape[2] : gate.cols();
  const int64_t dim = y.cols() / heads;
  const bool is_one_per_row = !has_strided_heads && gate.cols() == 1;
  MOTLEY_CHECK(is_one_per_row || (heads * dim == y.cols() && dim <= gate_stride &&
                                  (has_strided_heads || dim == gate_stride)),
               "a gate for every element, or one per row");
  stream.threads().parallel_for(
      y.rows(), row_grain(4 * y.cols()), [&](int, int64_t begin, int64_t end) {
        for (int64_t r = begin; r < end; ++r) {
          const float* g = gate.row<float>(r);
          float* out = y.row<float>(r);
          if (is_one_per_row) {
            kernels.sigmoid_scale(*g, y.cols(), out);
            continue;
          }
          for (int64_t h = 0; h < heads; ++h) {
            kernels.sigmoid_multiply(g + h * gate_stride, dim, out + h * dim);
          }
        }
      });
}

void cpu_add_bias(const CpuKernels& kernels, Stream& stream, const ConstTensorView& bias,
                  const TensorView& y) {
  MOTLEY_CHECK(bias.shape.elements() == y.cols(), "one bias per column");
  stream.threads().parallel_for(y.rows(), row_grain(y.cols()),
                                [&](int, int64_t begin, int64_t end) {
                                  for (int64_t r = begin; r < end; ++r) {
                                    kernels.add(bias.as<float>(), y.cols(), y.row<float>(r));
                                  }
                                });
}

void cpu_zero_rows(const CpuKernels&, Stream&, std::span<const int32_t> rows, const TensorView& y) {
  for (const int32_t r : rows) std::fill_n(y.row<float>(r), y.cols(), 0.0f);
}

}  // namespace motley
