// Delta rule with a decay of its own for every key channel: linear attention with a matrix state
// per head (Kimi delta attention).
//
// Per token and head h, with a = decay + dt_bias per key channel:
//   q, k <- L2-normalised (epsilon 1e-6 inside the root, on the sum); q <- q * key_dim^-1/2
//   beta = sigmoid(b)
//   g = lower_bound * sigmoid(e^a_log a)  (bounded)   or   g = -e^a_log softplus(a)
//   S <- diag(e^g) S;  m = S^T k;  d = beta (v - m);  S <- S + k d^T;  o = S^T q
// Source: fla-org/flash-linear-attention fla/ops/kda (naive_recurrent_kda, naive_chunk_kda); Kimi
// Linear technical report, section 3.
#pragma once

#include <cstdint>
#include <span>

#include "ops/gated_delta.h"
#include "tensor/row_batch.h"
#include "tensor/stream.h"
#include "tensor/tensor_view.h"

namespace motley {

struct ChannelDeltaShape {
  int heads = 0;
  int key_head_dim = 0;
  int value_head_dim = 0;

  int64_t key_dim() const { return int64_t{heads} * key_head_dim; }
  int64_t value_dim() const { return int64_t{heads} * value_head_dim; }
  // Channels of the convolution: q | k | v.
  int64_t conv_dim() const { return 2 * key_dim() + value_dim(); }
};

enum class DecayGate : uint8_t { kBounded, kSoftplus };

// The unfinished block of the chunked form: what tokens of the current block of kDeltaBlock
// positions did before this segment. The state is the one at the block's start.
struct ChannelDeltaCarry {
  int32_t* rows = nullptr;  // tokens held, 0..63 (host memory)
  // [kDeltaBlock, key_dim]: keys, normalised, faded to the newest token held. Products of decay
  // factors, as the state itself would have taken them: a sum of logarithms over 64 tokens would
  // lose digits, and its negative would overflow.
  TensorView keys;
  TensorView updates;  // [kDeltaBlock, value_dim]: d of each token
  TensorView decay;    // [1, key_dim]: the factor from the block's start to the newest token held

  bool is_empty() const { return rows == nullptr; }
};

struct ChannelDeltaSegment {
  RowSegment rows;
  TensorView state;         // [heads, key_head_dim, value_head_dim], updated in place
  ChannelDeltaCarry carry;  // chunked form only
  DeltaRing ring;           // recurrent form: when set, the rows are tentative
};

struct ChannelDeltaArgs {
  ChannelDeltaShape shape;
  DecayGate gate = DecayGate::kBounded;
  float lower_bound = -5.0f;  // of g, negative; bounded gate only
  ConstTensorView qkv;        // [rows, conv_dim]: q | k | v after the convolution
  ConstTensorView beta;       // [rows, heads]: b, before the sigmoid
  ConstTensorView decay;      // [rows, key_dim]: a without its bias
  ConstTensorView a_log;      // [heads] float32
  ConstTensorView dt_bias;    // [key_dim] float32
  std::span<const ChannelDeltaSegment> segments;
  TensorView out;  // [rows, value_dim]
};

struct ChannelDeltaOps {
  // Token by token. The form of decode and verify rows; exact for any segment length.
  void (*recurrent)(Stream& stream, const ChannelDeltaArgs& args) = nullptr;

  // Blocks of kDeltaBlock tokens on a grid of absolute position. Needs a carry per segment.
  void (*chunked)(Stream& stream, const ChannelDeltaArgs& args) = nullptr;

  // Folds the carried rows into the state and empties the carry. Called before a sequence's first
  // recurrent row after chunked ones.
  void (*flush_carry)(Stream& stream, const ChannelDeltaShape& shape,
                      const ChannelDeltaSegment& segment) = nullptr;

  // As GatedDeltaOps::commit.
  void (*commit)(Stream& stream, const ChannelDeltaShape& shape,
                 const ChannelDeltaSegment& segment) = nullptr;
};

}  // namespace motley
