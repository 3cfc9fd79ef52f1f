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

  // next_embedding [rows, hidden]: embeddings of the tokens after the hidden states' own.
  Status run(StepContext& context, const Batch& batch, const ConstTensorView& next_embedding,
             PostNormHidden hidden, PostNormHidden out, StepObserver& observer) const;

 private:
  WeightMatrix projection_;
  BoundNorm embedding_norm_;
  BoundNorm hidden_norm_;
  Layer layer_;
  BoundNorm final_norm_;
};

}  // namespace motley
