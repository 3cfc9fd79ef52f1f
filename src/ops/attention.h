// Grouped-query attention over a paged cache, with partial rotation and an output gate.
//
// Attention returns a PartialAttention over the keys its views hold; merge_partials makes it whole
// (R1). Sums along the cache are cut at page boundaries by absolute position, so a row's bits do
// not depend on the chunk it arrived in.
// Source: transformers models/qwen3_next/modeling_qwen3_next.py (Qwen3NextAttention).
#pragma once

#include <span>

#include "tensor/cache_view.h"
#include "tensor/partial_attention.h"
#include "tensor/row_batch.h"
#include "tensor/stream.h"
#include "tensor/tensor_view.h"
#include "topology/topology.h"

namespace motley {

struct RotaryParams {
  int rotary_dim = 0;  // leading dims of each head that rotate, pairs (i, i + rotary_dim / 2)
  double theta = 10000.0;
};

struct HeadNormRotaryArgs {
  ConstTensorView x;       // [rows, heads, stride >= head_dim]: one head's vector leads each stride
  ConstTensorView weight;  // [head_dim] float32
  float epsilon = 1e-6f;
  float weight_offset = 0.0f;
  RotaryParams rotary;
  std::span<const RowSegment> segments;  // positions of the rows
  TensorView y;                          // [rows, heads, head_dim]
};

struct AttentionSegment {
  RowSegment rows;
  CacheView cache;  // already holds the keys and values of the segment's own rows
};

struct AttentionArgs {
  ConstTensorView q;  // [rows, heads, head_dim], rotated
  int kv_heads = 0;
  float scale = 1.0f;
  std::span<const AttentionSegment> segments;
  PartialAttention result;  // out [rows, heads, head_dim], lse [rows, heads]
};

struct AttentionOps {
  // RMSNorm over each head's vector, then rotation by the row's absolute position.
  void (*head_norm_rotary)(Stream& stream, const HeadNormRotaryArgs& args) = nullptr;

  // Stores k and v [rows, kv_heads, head_dim] of each segment at its positions in its cache.
  void (*cache_write)(Stream& stream, const ConstTensorView& k, const ConstTensorView& v,
                      std::span<const AttentionSegment> segments) = nullptr;

  // Causal softmax attention: row at position p sees positions 0..p that its view holds.
  // A row that sees no key gets out = 0 and lse = -infinity.
  void (*attend)(Stream& stream, const AttentionArgs& args) = nullptr;

  // result <- the merge of `parts` in order: out = sum_i e^(lse_i - lse) out_i. result may be
  // parts[0].
  void (*merge)(Stream& stream, std::span<const PartialAttention> parts,
                const PartialAttention& result) = nullptr;
};

// The only maker of an AttentionOutput. Partials come in rank order and must cover every shard of
// the topology's decode-context-parallel group exactly once.
class AttentionMerger {
 public:
  static AttentionOutput merge_partials(Stream& stream, const AttentionOps& ops,
                                        std::span<const PartialAttention> partials,
                                        const Topology& topology);
};

}  // namespace motley
