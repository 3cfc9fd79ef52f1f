// Chooses the keys that each row of a latent attention may see, and keeps the indexer's own keys.
//   q_h = rope(W_q c_q);  k = rope(layer_norm(W_k x));  w = W_w x * scale
//   score(t, s) = sum_h w_h relu(q_h . k_s);  the best top_k of the keys up to t
// A row that has no more than top_k keys sees them all, and nothing is scored.
// Source: transformers models/deepseek_v32 and glm_moe_dsa (Indexer).
#pragma once

#include "io/loader.h"
#include "model/batch.h"
#include "model/observer.h"
#include "model/step_context.h"
#include "spec/model_spec.h"

namespace motley {

class Indexer {
 public:
  // Scores that are held at once, or those of one row where it has more: rows of a long prompt are
  // scored in pieces.
  static constexpr int64_t kMostScores = int64_t{1} << 22;

  Indexer(const IndexerSpec& spec, const LoadedWeights& weights, int layer);

  // selection [batch rows, width() of the spec] from x [rows, hidden] and the normed latent of the
  // queries, q_latent [rows, q_rank]; extends every segment's index keys by its rows.
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
  void score_and_choose(StepContext& context, const Batch& batch, const Queries& queries,
                        const RowCacheSegment& rows, StepObserver& observer,
                        const KeySelection& selection) const;

  IndexerSpec spec_;
  int layer_;
  WeightMatrix q_proj_;
  WeightMatrix k_proj_;
  WeightMatrix weights_proj_;
  ConstTensorView k_norm_weight_;
  ConstTensorView k_norm_bias_;
};

// The rows of each segment with their paged rows of one kind, which then hold the segment's own
// rows too. The element type is the layout's.
std::vector<RowCacheSegment> row_caches(const Batch& batch, int layer, StateKind kind, int width);

}  // namespace motley
