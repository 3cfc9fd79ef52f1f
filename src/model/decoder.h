// Runs any ModelSpec: embedding, layers, final norm, head, and the draft layers.
//
// run_layer is public: chunk-major callers run all layers over one chunk, layer-major ones (prefill
// of a streamed model) run all chunks through one layer.
// Ownership: refers to weights, store, ops, topology and collective, which outlive it.
// Thread rule: immutable; one step at a time per stream.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "model/draft_head.h"
#include "model/layer.h"

namespace motley {

class Decoder {
 public:
  Decoder(const ModelSpec& spec, const LoadedWeights& weights, ExpertStore& store,
          DeltaForm prefill_form);

  int layers() const { return static_cast<int>(layers_.size()); }
  int drafts() const { return static_cast<int>(drafts_.size()); }
  int64_t hidden_size() const { return hidden_size_; }
  int64_t vocab_size() const { return head_.rows; }
  // Of `hidden` below: [rows, hidden_size], or [rows, streams, hidden_size].
  Shape residual_shape(int64_t rows) const {
    return motley::residual_shape(residual_, rows, hidden_size_);
  }

  // Columns of the StepContext::selection that run_layer() needs for the rows of its batch, kept
  // from layer to layer; 0: none. run_layers() has its own.
  int64_t selection_width() const { return selection_width_; }

  // hidden = embeddings of the batch's tokens, in every stream.
  void embed(StepContext& context, std::span<const int32_t> tokens, const TensorView& hidden) const;
  Status run_layer(int layer, StepContext& context, const Batch& batch, const TensorView& hidden,
                   StepObserver& observer) const;
  // Chunk-major: every layer over this batch. Sequence lengths advance on success, but for
  // tentative rows.
  Status run_layers(StepContext& context, const Batch& batch, const TensorView& hidden,
                    StepObserver& observer) const;
  // Makes the first `rows` of the sequence's tentative rows of the last step final: the state and
  // its length are then bit for bit what ordinary decode rows would have left. The rest are
  // dropped.
  void commit(StepContext& context, SequenceState& state, int32_t rows,
              StepObserver& observer) const;
  // y [rows, hidden_size]: the norm of the streams' mean. It may be the input's view when there is
  // one stream.
  PostNormHidden final_norm(StepContext& context, PreNormHidden hidden, const TensorView& y) const;
  // logits [rows, vocab] of the trunk; `counts` are the roles of these rows, decode first.
  void logits(StepContext& context, PostNormHidden hidden, RowCounts counts,
              const TensorView& logits) const;

  // Draft `index` over rows whose `tokens` are the *next* tokens and whose positions are those of
  // the hidden states. The result feeds both `draft_logits` and the next draft step.
  Status run_draft(int index, StepContext& context, const Batch& next_tokens, PostNormHidden hidden,
                   PostNormHidden out, StepObserver& observer) const;

  // As logits(), of a draft, which may have a head of its own.
  void draft_logits(int index, StepContext& context, PostNormHidden hidden, RowCounts counts,
                    const TensorView& logits) const;

 private:
  int64_t hidden_size_;
  ResidualSpec residual_;
  WeightMatrix embedding_;
  std::vector<Layer> layers_;
  BoundNorm final_norm_;
  WeightMatrix head_;
  std::vector<DraftHead> drafts_;
  int64_t selection_width_;
};

// Experts of all layers, drafts last, as the resident store wants them.
std::vector<std::vector<ExpertWeights>> model_experts(const ModelSpec& spec,
                                                      const LoadedWeights& weights);

}  // namespace motley
