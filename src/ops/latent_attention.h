// Attention whose keys and values are one latent vector per token (multi-head latent attention), in
// the absorbed form: per head h, with W_UK and W_UV the head's rows of the up-projection,
//   q~ = W_UK^T q_nope;   s_t = (q~ . c_t + q_rope . k_t) * scale;   o~ = sum_t softmax(s)_t c_t
//   o = W_UV o~
// A cache row is [c | k]: the latent, then the rotated key part that all heads share (none when the
// model has no rotation). Sums along the cache run over a row's own keys in ascending position, cut
// at fixed numbers of keys, so its bits do not depend on the chunk it arrived in.
// Source: DeepSeek-V2 technical report, section 2.1; transformers models/deepseek_v32.
#pragma once

#include <cstdint>
#include <span>

#include "ops/attention.h"
#include "tensor/partial_attention.h"
#include "tensor/row_cache.h"
#include "tensor/stream.h"
#include "tensor/tensor_view.h"
#include "tensor/weight_matrix.h"

namespace motley {

// A count of a KeySelection: all positions up to the row's own.
inline constexpr int32_t kEveryKey = -1;

// The keys that each row of a batch may see. An empty selection: every row sees every key up to its
// own position.
struct KeySelection {
  TensorView positions;  // [rows, width] int32: global positions, ascending, none above the row's
  TensorView counts;     // [rows] int32: how many of them count, or kEveryKey

  bool is_empty() const { return counts.is_empty(); }
  KeySelection slice_rows(int64_t begin, int64_t count) const {
    return {positions.slice_rows(begin, count), counts.slice_rows(begin, count)};
  }
};

struct RotateArgs {
  // Each head's vector is `rotary_dim` elements from the start of its stride; the rest is neither
  // read nor written. The last stride need not be whole. y may be x.
  ConstTensorView x;  // [rows, heads, stride]
  RotaryParams rotary;
  bool interleaved = false;  // pairs (2i, 2i + 1), else (i, i + rotary_dim / 2)
  std::span<const RowSegment> segments;
  TensorView y;  // [rows, heads, stride]
};

struct LatentAttentionArgs {
  ConstTensorView q;  // [rows, heads, width of a cache row]: q~, then the rotated part
  int rank = 0;       // leading elements of a cache row that are its value
  float scale = 1.0f;
  std::span<const RowCacheSegment> segments;  // hold the rows of the segment itself
  KeySelection selection;
  PartialAttention result;  // out [rows, heads, rank], lse [rows, heads]
};

struct LatentOps {
  void (*rotate)(Stream& stream, const RotateArgs& args) = nullptr;

  // Stores x [rows, width] of each segment at its positions in its cache.
  void (*row_write)(Stream& stream, const ConstTensorView& x,
                    std::span<const RowCacheSegment> segments) = nullptr;

  // y[r, h] = W_h x[r, h], or W_h^T x[r, h] when transposed. x and y: [rows, heads, stride]; of
  // each stride as many elements count as W_h has columns and rows. Weights of any format, taken as
  // float32; |y - ref| <= 8 * 2^-24 * sqrt(K) * sum|w x|. y must not overlap x.
  void (*head_linear)(Stream& stream, const ConstTensorView& x,
                      std::span<const WeightMatrix> weights, bool transposed,
                      const TensorView& y) = nullptr;

  // A row that sees no key gets out = 0 and lse = -infinity.
  void (*attend)(Stream& stream, const LatentAttentionArgs& args) = nullptr;
};

}  // namespace motley
