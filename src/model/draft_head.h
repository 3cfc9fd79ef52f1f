// Multi-token-prediction layer: x = W_fc [norm_e(embedding of next token) ; norm_h(hidden)], one
// layer with its own cache at the hidden state's position, final norm. The hidden states it takes
// and returns are post-norm (feeding pre-norm ones costs acceptance silently).
// Source: vllm model_executor/models/qwen3_next_mtp.py.
#pragma once

#include "model/layer.h"

namespace motley {

class DraftHead {
 public:
  DraftHead(const DraftSpec& spec, const LoadedWeights& weights, ExpertStore& store, int index);

  // Of its own; empty: those of the trunk.
  const WeightMatrix& embedding() const { return embedding_; }
  const WeightMatrix& head() const { return head_; }

  // next_embedding [rows, hidden]: embeddings of the tokens after the hidden states' own. A row at
  // position 0 is cleared in some models (DraftSpec::zero_first_embedding).
  Status run(StepContext& context, const Batch& batch, const TensorView& next_embedding,
             PostNormHidden hidden, PostNormHidden out, StepObserver& observer) const;

 private:
  void clear_first(StepContext& context, const Batch& batch, const TensorView& embedding) const;

  WeightMatrix embedding_;
  WeightMatrix head_;
  bool zero_first_embedding_;
  WeightMatrix projection_;
  BoundNorm embedding_norm_;
  BoundNorm hidden_norm_;
  Layer layer_;
  BoundNorm final_norm_;
};

}  // namespace motley
