// Gated delta rule: linear attention with a matrix state per value head.
//
// Per token and value head h (key head g = h / (value_heads / key_heads)):
//   q, k <- L2-normalised (epsilon 1e-6 inside the root, on the sum); q <- q * key_dim^-1/2
//   beta = sigmoid(b);  decay = -exp(a_log) * softplus(a + dt_bias)
//   S <- e^decay S;  m = S^T k;  d = beta (v - m);  S <- S + k d^T;  o = S^T q
// Source: transformers models/qwen3_next/modeling_qwen3_next.py, torch_recurrent_gated_delta_rule
// and torch_chunk_gated_delta_rule; Yang et al., "Gated Delta Networks".
#pragma once

#include <cstdint>
#include <span>

#include "tensor/row_batch.h"
#include "tensor/stream.h"
#include "tensor/tensor_view.h"

namespace motley {

struct GatedDeltaShape {
  int key_heads = 0;
  int value_heads = 0;
  int key_head_dim = 0;
  int value_head_dim = 0;

  int64_t key_dim() const { return int64_t{key_heads} * key_head_dim; }
  int64_t value_dim() const { return int64_t{value_heads} * value_head_dim; }
  // Channels of the convolution: q | k | v.
  int64_t conv_dim() const { return 2 * key_dim() + value_dim(); }
};

// Tokens of a block of the chunked form. Blocks lie on a grid of absolute position mod 64.
inline constexpr int kDeltaBlock = 64;

// The unfinished block of the chunked form, so that every chunk size gives the same bits: the rows
// of the current block that came before this segment. The state is the one at the block's start.
struct DeltaCarry {
  int32_t* rows = nullptr;  // tokens held, 0..63 (host memory)
  TensorView keys;          // [kDeltaBlock, key_dim]: normalised
  TensorView updates;       // [kDeltaBlock, value_dim]: d of each token
  // [kDeltaBlock, value_heads]: decay of each token, the logarithm. Not their sums: a difference of
  // sums would lose the digits that decide between neighbours once the sums are large.
  TensorView decays;

  bool is_empty() const { return rows == nullptr; }
};

// What tentative rows (verification of drafts) leave behind instead of a new state, one entry a
// row: what commit needs to do to the state, for the rows that turn out right, the operations that
// ordinary rows would have done, in the same order. At least as many entries as rows.
struct DeltaRing {
  TensorView keys;     // [entries, key_dim]: normalised
  TensorView updates;  // [entries, value_dim]: d of each token
  TensorView factors;  // [entries, value_heads]: e^decay; per channel [entries, key_dim]: e^g

  bool is_empty() const { return keys.is_empty(); }
};

struct GatedDeltaSegment {
  RowSegment rows;
  TensorView state;  // [value_heads, key_head_dim, value_head_dim], updated in place
  DeltaCarry carry;  // chunked form only
  // Recurrent form: when set, the rows are tentative. Outputs as ever; the state is only read.
  DeltaRing ring;
};

struct GatedDeltaArgs {
  GatedDeltaShape shape;
  ConstTensorView qkv;      // [rows, conv_dim]: q | k | v after the convolution
  ConstTensorView beta;     // [rows, value_heads]: b, before the sigmoid
  ConstTensorView decay;    // [rows, value_heads]: a, before softplus
  ConstTensorView a_log;    // [value_heads] float32
  ConstTensorView dt_bias;  // [value_heads] float32
  std::span<const GatedDeltaSegment> segments;
  TensorView out;  // [rows, value_dim]
};

struct GatedDeltaOps {
  // Token by token. The form of decode and verify rows; exact for any segment length.
  void (*recurrent)(Stream& stream, const GatedDeltaArgs& args) = nullptr;

  // Blocks of 64 tokens (WY form). Needs a carry per segment.
  void (*chunked)(Stream& stream, const GatedDeltaArgs& args) = nullptr;

  // Folds the carried rows into the state and empties the carry. Called before a sequence's first
  // recurrent row after chunked ones.
  void (*flush_carry)(Stream& stream, const GatedDeltaShape& shape,
                      const GatedDeltaSegment& segment) = nullptr;

  // Takes the first rows.rows entries of the segment's ring into its state, which is then bit for
  // bit the one that as many ordinary recurrent rows would have left. May be null in a backend
  // without drafts.
  void (*commit)(Stream& stream, const GatedDeltaShape& shape,
                 const GatedDeltaSegment& segment) = nullptr;
};

}  // namespace motley
