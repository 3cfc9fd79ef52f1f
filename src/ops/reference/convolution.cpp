#include <algorithm>
#include <vector>

#include "ops/reference/reference_math.h"
#include "ops/reference/reference_ops.h"

namespace motley {
namespace {

void convolve_segment(const ConstTensorView& u, const ConstTensorView& weight,
                      const ConvolutionSegment& segment, const TensorView& y) {
  const int64_t channels = weight.shape[0];
  const int64_t kernel = weight.shape[1];
  const int64_t rows = segment.rows.rows;
  const float* w = weight.as<float>();
  std::vector<double> inputs(static_cast<size_t>(kernel - 1 + rows));
  for (int64_t c = 0; c < channels; ++c) {
    for (int64_t t = 0; t < kernel - 1; ++t) {
      inputs[static_cast<size_t>(t)] = segment.window.row<double>(t)[c];
    }
    for (int64_t t = 0; t < rows; ++t) {
      inputs[static_cast<size_t>(kernel - 1 + t)] = u.row<double>(segment.rows.first_row + t)[c];
    }
    for (int64_t t = 0; t < rows; ++t) {
      double sum = 0;
      for (int64_t j = 0; j < kernel; ++j) {
        sum += double{w[c * kernel + j]} * inputs[static_cast<size_t>(t + j)];
      }
      y.row<double>(segment.rows.first_row + t)[c] = reference_silu(sum);
    }
    if (!segment.ring.is_empty()) {
      for (int64_t t = 0; t < rows; ++t) {
        segment.ring.row<double>(t)[c] = inputs[static_cast<size_t>(kernel - 1 + t)];
      }
      continue;
    }
    for (int64_t t = 0; t < kernel - 1; ++t) {
      segment.window.row<double>(t)[c] = inputs[static_cast<size_t>(rows + t)];
    }
  }
}

// The window's rows in ascending order, so that none is overwritten before it is read.
void commit(Stream&, const ConvolutionSegment& segment) {
  const int64_t rows = segment.rows.rows;
  const int64_t history = segment.window.rows();
  for (int64_t t = 0; t < history; ++t) {
    const int64_t from = t + rows;
    const double* source = from < history ? segment.window.row<double>(from)
                                          : segment.ring.row<double>(from - history);
    if (rows > 0) std::copy_n(source, segment.window.cols(), segment.window.row<double>(t));
  }
}

void causal_convolution(Stream&, const ConstTensorView& u, const ConstTensorView& weight,
                        std::span<const ConvolutionSegment> segments, const TensorView& y) {
  for (const ConvolutionSegment& segment : segments) convolve_segment(u, weight, segment, y);
}

}  // namespace

ConvolutionOps reference_convolution_ops() {
  return {causal_convolution, commit};
}

}  // namespace motley
