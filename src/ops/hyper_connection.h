// Residual streams: a token has `streams` hidden vectors instead of one; each mixer or
// feed-forward reads a mix of them and is written back to all, with coefficients of its own token.
//
// Per row with streams R [n, hidden], in float32:
//   f = R flattened, stream after stream;  m = fn (f (mean(f^2) + norm_epsilon)^-1/2)
//   pre_i  = sigmoid(m_i scale_0 + base_i) + epsilon                          i < n
//   post_j = post_scale * sigmoid(m_{n+j} scale_1 + base_{n+j})
//   C_ij   = softmax over j of (m_{2n+in+j} scale_2 + base_{2n+in+j}) + epsilon, then C divided by
//            its column sums + epsilon, then (sinkhorn_iterations - 1) times by row and column sums
//   x = sum_i pre_i R_i;  y = f(x);  R_j <- post_j y + sum_i C_ij R_i
// Source: "mHC: Manifold-Constrained Hyper-Connections"; the text model of transformers that has
// the configuration keys hc_mult, hc_eps and hc_sinkhorn_iters.
#pragma once

#include <cstdint>

#include "tensor/stream.h"
#include "tensor/tensor_view.h"

namespace motley {

inline constexpr int kMostStreams = 8;

struct HyperParams {
  int streams = 4;  // 1 to kMostStreams
  int sinkhorn_iterations = 20;
  float norm_epsilon = 1e-6f;
  float epsilon = 1e-6f;
  float post_scale = 2.0f;

  // Numbers per row: pre, post and C.
  int64_t coefficients() const { return int64_t{streams} * (2 + streams); }
};

struct HyperWeights {
  ConstTensorView fn;     // [coefficients, streams * hidden] float32
  ConstTensorView base;   // [coefficients] float32
  ConstTensorView scale;  // [3] float32
};

struct HyperOps {
  // Coefficients of every row and x = sum_i pre_i R_i. streams: [rows, n, hidden];
  // coefficients: [rows, n (2 + n)]; x: [rows, hidden].
  void (*mix)(Stream& stream, const ConstTensorView& streams, const HyperWeights& weights,
              const HyperParams& params, const TensorView& coefficients,
              const TensorView& x) = nullptr;

  // R_j <- post_j y + sum_i C_ij R_i, in place, with the coefficients of mix().
  void (*merge)(Stream& stream, const ConstTensorView& y, const ConstTensorView& coefficients,
                const TensorView& streams) = nullptr;

  // Every stream becomes x. x: [rows, hidden]; streams: [rows, n, hidden].
  void (*spread)(Stream& stream, const ConstTensorView& x, const TensorView& streams) = nullptr;

  // y = the mean of the streams.
  void (*mean)(Stream& stream, const ConstTensorView& streams, const TensorView& y) = nullptr;
};

}  // namespace motley
