// Normalisation and element-wise ops. All accumulate in float32 (float64 in the reference), in an
// order that depends on the dimension alone.
#pragma once

#include <cstdint>
#include <span>

#include "ops/swiglu.h"
#include "tensor/stream.h"
#include "tensor/tensor_view.h"

namespace motley {

struct RmsNormParams {
  float epsilon = 1e-6f;
  // Added to every weight: 1 for zero-centred weights, 0 for plain ones.
  float weight_offset = 0.0f;
};

struct NormOps {
  // y = x * (mean(x^2) + epsilon)^-1/2 * (weight + weight_offset), over the last dimension.
  // x, y: [rows, dim]; weight: [dim] float32. y may be x.
  void (*rms_norm)(Stream& stream, const ConstTensorView& x, const ConstTensorView& weight,
                   RmsNormParams params, const TensorView& y) = nullptr;

  // Norm first, gate after: y = rms_norm(x) * weight * silu(gate), per head.
  // x, gate, y: [rows, heads * dim]; weight: [dim], one vector for all heads. y may be x.
  void (*gated_rms_norm)(Stream& stream, const ConstTensorView& x, const ConstTensorView& gate,
                         const ConstTensorView& weight, RmsNormParams params,
                         const TensorView& y) = nullptr;

  // y += x, [rows, dim].
  void (*add)(Stream& stream, const ConstTensorView& x, const TensorView& y) = nullptr;

  // y = silu(gate) * up within the limit of `params`, [rows, dim]. y may be gate or up.
  void (*silu_multiply)(Stream& stream, const ConstTensorView& gate, const ConstTensorView& up,
                        SwigluParams params, const TensorView& y) = nullptr;

  // y *= sigmoid(gate), element-wise for gate [rows, dim], or one gate per row for [rows, 1].
  // For a gate that is interleaved with other data, gate [rows, heads, stride] and
  // y [rows, heads, dim <= stride]: element i of head h meets gate[h * stride + i]. The gate's data
  // pointer is already at the first gate element, so the tail of the last stride is not read.
  void (*sigmoid_multiply)(Stream& stream, const ConstTensorView& gate,
                           const TensorView& y) = nullptr;

  // Every row of y += bias: [dim] float32.
  void (*add_bias)(Stream& stream, const ConstTensorView& bias, const TensorView& y) = nullptr;

  // The named rows of y become 0.
  void (*zero_rows)(Stream& stream, std::span<const int32_t> rows, const TensorView& y) = nullptr;
};

}  // namespace motley
