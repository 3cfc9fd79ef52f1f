// Depthwise causal convolution over time with a carried window.
// Source: transformers models/qwen3_next/modeling_qwen3_next.py (torch_causal_conv1d_update).
#pragma once

#include <span>

#include "tensor/row_batch.h"
#include "tensor/stream.h"
#include "tensor/tensor_view.h"

namespace motley {

struct ConvolutionSegment {
  RowSegment rows;
  // [kernel - 1, channels] in activation dtype: the last inputs before the segment, oldest first,
  // before the activation; all zero at position 0. Updated to the last inputs of the segment.
  TensorView window;
  // [entries, channels], at least as many entries as rows: when set, the rows are tentative. Their
  // inputs are kept here and the window is only read.
  TensorView ring;
};

struct ConvolutionOps {
  // y_t[c] = silu(sum_j weight[c, j] * u_{t - kernel + 1 + j}[c]); weight[c, kernel - 1] meets the
  // current token. u, y: [rows, channels]; weight: [channels, kernel] float32. y must not be u.
  void (*causal_convolution)(Stream& stream, const ConstTensorView& u,
                             const ConstTensorView& weight,
                             std::span<const ConvolutionSegment> segments,
                             const TensorView& y) = nullptr;

  // Takes the first rows.rows entries of the segment's ring into its window. May be null in a
  // backend without drafts.
  void (*commit)(Stream& stream, const ConvolutionSegment& segment) = nullptr;
};

}  // namespace motley
