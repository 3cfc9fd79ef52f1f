// Choosing the keys that a query attends to (lightning indexer): scores of small heads, and the
// best of them in a total order.
//   score(t, s) = sum_h w_th relu(q_th . k_s)
// relu gives exact zeros, so equal scores are common: the order is score descending, then position
// ascending, which depends neither on the length of the cache nor on who asks.
// Source: DeepSeek-V3.2 technical report, section 2; transformers models/deepseek_v32.
#pragma once

#include <cstdint>
#include <span>

#include "tensor/row_cache.h"
#include "tensor/stream.h"
#include "tensor/tensor_view.h"

namespace motley {

struct IndexScoresArgs {
  ConstTensorView q;        // [rows, heads, dim]
  ConstTensorView weights;  // [rows, heads]
  float scale = 1.0f;       // of the weights
  std::span<const RowCacheSegment> segments;
  int tokens_per_key = 1;
  // [rows, >= keys]. Key k is a candidate of the row at position p when its last token,
  // (k + 1) * tokens_per_key - 1, is not after p; other scores are not written.
  TensorView scores;
};

struct IndexSelectArgs {
  ConstTensorView scores;      // [rows, >= candidates]
  ConstTensorView candidates;  // [rows] int32: the first so many scores of a row count
  // [rows, top_k] int32: a row whose first entry is >= 0 takes these (ascending, then -1 up to the
  // end) instead of the best; or empty.
  ConstTensorView forced;
  TensorView chosen;  // [rows, top_k] int32, ascending
  TensorView counts;  // [rows] int32: min(top_k, candidates), or the number of forced ones
};

struct IndexOps {
  // y = (x - mean) / sqrt(var + epsilon) * weight + bias over the last dimension; y may be x.
  // x, y: [rows, dim]; weight, bias: [dim] float32.
  void (*layer_norm)(Stream& stream, const ConstTensorView& x, const ConstTensorView& weight,
                     const ConstTensorView& bias, float epsilon, const TensorView& y) = nullptr;

  void (*scores)(Stream& stream, const IndexScoresArgs& args) = nullptr;

  // The top_k (columns of `chosen`) best of each row; NaN ranks as -infinity.
  void (*select)(Stream& stream, const IndexSelectArgs& args) = nullptr;
};

}  // namespace motley
