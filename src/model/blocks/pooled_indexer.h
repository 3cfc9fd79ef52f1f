// An indexer that scores pools of tokens instead of tokens (ops/index_pool.h): one key is kept a
// pool, mixed from its tokens' keys, and a row sees the tokens of the best pools and, in most
// models, those of the pool that is still open. Nothing is rotated.
//   q_h = W_q c_q;  k = layer_norm(W_k x);  gate = W_gate x;  w = W_w x * scale
//   score(t, p) = sum_h w_h relu(q_h . key_p), for pools p whose last token is not after t
// A row whose own pool is complete sees itself only if that pool is chosen.
// Source: the text model of transformers that has the configuration key index_kpool.
#pragma once

#include <vector>

#include "io/loader.h"
#include "model/batch.h"
#include "model/observer.h"
#include "model/step_context.h"
#include "spec/model_spec.h"

namespace motley {

class PooledIndexer {
 public:
  PooledIndexer(const IndexerSpec& spec, const LoadedWeights& weights, int layer);

  // selection [batch rows, width() of the spec] from x [rows, hidden] and the normed latent of the
  // queries; keeps the keys of the pools that the rows complete, and the rows for those they leave
  // open. Keys that tentative rows complete are written again once the pool is complete for good.
  void select(StepContext& context, const Batch& batch, const ConstTensorView& x,
              const ConstTensorView& q_latent, StepObserver& observer,
              const KeySelection& selection) const;

 private:
  struct Queries {
    TensorView q;        // [rows, heads, head_dim]
    TensorView weights;  // [rows, heads]
  };
  Queries project(StepContext& context, const Batch& batch, const ConstTensorView& x,
                  const ConstTensorView& q_latent) const;
  void keep_keys(StepContext& context, const Batch& batch, const ConstTensorView& k,
                 const ConstTensorView& gate) const;
  RowCacheSegment pools_of(const BatchSegment& segment) const;
  void choose(StepContext& context, const Batch& batch, const Queries& queries,
              const RowCacheSegment& all, StepObserver& observer,
              const KeySelection& selection) const;
  void choose_piece(StepContext& context, const Batch& batch, const Queries& queries,
                    const RowCacheSegment& piece, int64_t first_row, StepObserver& observer,
                    const KeySelection& selection) const;

  IndexerSpec spec_;
  int layer_;
  int top_pools_;
  WeightMatrix q_proj_;
  WeightMatrix k_proj_;
  WeightMatrix weights_proj_;
  WeightMatrix gate_proj_;
  ConstTensorView offset_;
  ConstTensorView k_norm_weight_;
  ConstTensorView k_norm_bias_;
};

}  // namespace motley
