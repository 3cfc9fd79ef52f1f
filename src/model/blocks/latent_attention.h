// Attention over one latent vector per token, absorbed: queries go into the latent space and values
// come out of it, for decode and prefill alike (docs/decisions/0014-absorbed-only.md).
//   c_q = rms_norm(W_qa x);  q = W_qb c_q per head [nope | rope];  [c | k] = W_kva x;  c <-
//   rms_norm cache row = [c | rope(k)];  q~ = [W_UK^T q_nope | rope(q_rope)];  out = W_o (W_UV
//   attend(q~))
// Source: transformers models/deepseek_v32 and glm_moe_dsa; facts of the op in
// ops/latent_attention.h.
#pragma once

#include <variant>
#include <vector>

#include "io/loader.h"
#include "model/batch.h"
#include "model/blocks/indexer.h"
#include "model/blocks/pooled_indexer.h"
#include "model/observer.h"
#include "model/step_context.h"
#include "spec/model_spec.h"

namespace motley {

class LatentAttentionBlock {
 public:
  LatentAttentionBlock(const LatentAttentionSpec& spec, const LoadedWeights& weights, int layer);

  bool has_indexer() const { return indexer_.index() != 0; }
  bool has_pooled_indexer() const { return std::holds_alternative<PooledIndexer>(indexer_); }

  // out [rows, hidden] from x [rows, hidden]; extends every segment's latents, and index keys, by
  // its rows. A layer that shares its keys reads context.selection, which the nearest layer before
  // it that has an indexer filled for the same rows.
  Status run(StepContext& context, const Batch& batch, const ConstTensorView& x,
             const TensorView& out, StepObserver& observer) const;
  // Nothing to do: cached rows beyond a sequence's length are never read, and a pooled indexer's
  // ring keeps what precedes that length.
  void commit(StepContext&, SequenceState&, int32_t) const {}

 private:
  struct Projected {
    TensorView q_latent;  // [rows, q_rank]
    TensorView q;         // [rows, heads, kv_rank + rope_dim]
    TensorView cache;     // [rows, kv_rank + rope_dim]
  };
  Projected project(StepContext& context, const Batch& batch, const ConstTensorView& x) const;
  void rotate(StepContext& context, const Batch& batch, TensorView from, int64_t from_dim,
              TensorView to, int64_t to_dim) const;
  KeySelection select(StepContext& context, const Batch& batch, const ConstTensorView& x,
                      const ConstTensorView& q_latent, StepObserver& observer) const;
  Status project_output(StepContext& context, RowCounts counts, const AttentionOutput& attention,
                        const TensorView& out) const;

  LatentAttentionSpec spec_;
  int layer_;
  WeightMatrix q_a_proj_;
  WeightMatrix q_b_proj_;
  WeightMatrix kv_a_proj_;
  WeightMatrix o_proj_;
  std::vector<WeightMatrix> key_up_;    // W_UK of each head, [nope_dim, kv_rank]
  std::vector<WeightMatrix> value_up_;  // W_UV of each head, [value_dim, kv_rank]
  ConstTensorView q_a_norm_;
  ConstTensorView kv_a_norm_;
  ConstTensorView q_a_bias_;  // the biases may be empty
  ConstTensorView kv_a_bias_;
  ConstTensorView o_bias_;
  std::variant<std::monostate, Indexer, PooledIndexer> indexer_;
};

}  // namespace motley
