// Gated grouped-query attention with partial rotation.
//   [q | gate] = W_q x per head; q, k <- rope(rms_norm(.)); out = W_o (attend(q, k, v) *
//   sigmoid(gate))
// Source: transformers models/qwen3_next/modeling_qwen3_next.py, Qwen3NextAttention.
#pragma once

#include "io/loader.h"
#include "model/batch.h"
#include "model/step_context.h"
#include "spec/model_spec.h"

namespace motley {

class GatedAttentionBlock {
 public:
  // `layer` and `kind` name the cache in the state layout. Weights outlive the block.
  GatedAttentionBlock(const GatedAttentionSpec& spec, const LoadedWeights& weights, int layer,
                      StateKind kind);

  // out [rows, hidden] = attention(x [rows, hidden]); extends every segment's cache by its rows.
  Status run(StepContext& context, const Batch& batch, const ConstTensorView& x,
             const TensorView& out) const;
  // Nothing to do: cached rows beyond a sequence's length are never read.
  void commit(StepContext&, SequenceState&, int32_t) const {}

 private:
  Status project_output(StepContext& context, RowCounts counts, const AttentionOutput& attention,
                        const TensorView& out) const;

  GatedAttentionSpec spec_;
  int layer_;
  StateKind kind_;
  WeightMatrix q_proj_;
  WeightMatrix k_proj_;
  WeightMatrix v_proj_;
  WeightMatrix o_proj_;
  ConstTensorView q_norm_;
  ConstTensorView k_norm_;
};

}  // namespace motley
