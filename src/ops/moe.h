// Mixture-of-experts routing and expert products.
//
// Total order in every top-k: score descending, then index ascending. A token's experts are listed
// and summed in ascending expert id, then the shared expert, in every path (R5).
#pragma once

#include <cstdint>
#include <span>

#include "ops/swiglu.h"
#include "tensor/row_batch.h"
#include "tensor/stream.h"
#include "tensor/tensor_view.h"
#include "tensor/weight_matrix.h"

namespace motley {

struct RoutingParams {
  int experts_per_token = 0;
  bool normalise = true;  // divide the chosen probabilities by their sum
};

// Routing by sigmoids with a correction of the choice alone:
//   s = sigmoid(logits);  c = s + bias
//   with groups > 1: a group's score is the sum of its two best c; experts outside of the
//   kept_groups best groups rank as -infinity
//   the top experts_per_token of c;  weight = s, or s / (sum of the chosen s + 1e-20), * scale
// Source: DeepSeek-V3 technical report, section 2.1.2; transformers models/deepseek_v3.
struct SigmoidRoutingParams {
  int experts_per_token = 0;
  bool normalise = true;
  int groups = 1;  // divides the experts; the others are 1 to groups
  int kept_groups = 1;
  float scale = 1.0f;
};

struct Routing {
  TensorView experts;  // [rows, experts_per_token] int32, ascending within a row
  TensorView weights;  // [rows, experts_per_token] activation dtype, in the same order
};

struct ExpertParams {
  int experts_per_token = 0;
  SwigluParams swiglu;
};

struct ExpertWeights {
  WeightMatrix gate;  // [intermediate, hidden]
  WeightMatrix up;    // [intermediate, hidden]
  WeightMatrix down;  // [hidden, intermediate]
};

// One expert that is in memory now, and the (row, slot) pairs of the batch that chose it.
struct ExpertWork {
  const ExpertWeights* weights = nullptr;
  std::span<const int32_t> pairs;  // row * experts_per_token + slot, ascending
};

struct MoeOps {
  // p = softmax(logits); the top experts_per_token; weights p or p / sum. logits: [rows, experts].
  // The choice compares logits: the same order as p, but exact where p would round to a tie.
  // Rows whose first `forced` entry is >= 0 take those experts instead (verification only):
  // forced [rows, experts_per_token] int32, all in [0, experts), or an empty view.
  void (*route_softmax)(Stream& stream, const ConstTensorView& logits, RoutingParams params,
                        const ConstTensorView& forced, const Routing& routing) = nullptr;

  // pair_out[pair] = down(silu(gate x_row) * (up x_row)) for every pair of every work item, within
  // the limit of params.swiglu.
  // x: [rows, hidden]; pair_out: [rows * experts_per_token, hidden]; the other pairs keep their
  // contents, so a union of experts larger than memory runs in waves. A pair's role is its row's:
  // rows below counts.decode have the decode role.
  void (*experts)(Stream& stream, const ConstTensorView& x, RowCounts counts, ExpertParams params,
                  std::span<const ExpertWork> work, const TensorView& pair_out) = nullptr;

  // y[row] = sum over slots, ascending, of weight * pair_out + shared[row]. shared: [rows, hidden]
  // or empty. y may be shared.
  void (*combine)(Stream& stream, const ConstTensorView& pair_out, const Routing& routing,
                  const ConstTensorView& shared, const TensorView& y) = nullptr;

  // logits [rows, experts]; bias [experts] float32; forced as in route_softmax.
  void (*route_sigmoid)(Stream& stream, const ConstTensorView& logits, const ConstTensorView& bias,
                        SigmoidRoutingParams params, const ConstTensorView& forced,
                        const Routing& routing) = nullptr;
};

}  // namespace motley
