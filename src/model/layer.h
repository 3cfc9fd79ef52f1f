// One transformer layer: norm, mixer, residual, norm, feed-forward, residual.
#pragma once

#include <variant>

#include "model/blocks/channel_delta.h"
#include "model/blocks/dense_mlp.h"
#include "model/blocks/gated_attention.h"
#include "model/blocks/gated_delta.h"
#include "model/blocks/latent_attention.h"
#include "model/blocks/moe.h"
#include "model/residual.h"

namespace motley {

// A norm's weight together with its parameters.
struct BoundNorm {
  ConstTensorView weight;
  RmsNormParams params;

  BoundNorm(const NormSpec& spec, const LoadedWeights& weights);
  void apply(StepContext& context, const ConstTensorView& x, const TensorView& y) const;
};

class Layer {
 public:
  // `index` is the layer's number in the state layout and the expert store.
  // `residual`: of all layers of a trunk; a plain layer uses one stream whatever it says.
  Layer(const LayerSpec& spec, const ResidualSpec& residual, const LoadedWeights& weights,
        ExpertStore& store, int index, StateKind kv_kind, DeltaForm prefill_form);

  // hidden, the residual of the rows (residual_shape), is updated in place; state advances by the
  // batch's rows. `next` is the layer that runs after this one, null after the last: its experts
  // can be guessed here.
  Status run(StepContext& context, const Batch& batch, const TensorView& hidden,
             StepObserver& observer, const Layer* next) const;

  // Takes the first `rows` of a sequence's tentative rows into this layer's state. Every mixer has
  // a commit: one whose whole state is paged has nothing to do.
  void commit(StepContext& context, SequenceState& state, int32_t rows,
              StepObserver& observer) const;

 private:
  using Mixer =
      std::variant<GatedDeltaBlock, GatedAttentionBlock, ChannelDeltaBlock, LatentAttentionBlock>;
  static Mixer make_mixer(const LayerSpec& spec, const LoadedWeights& weights, int index,
                          StateKind kv_kind, DeltaForm prefill_form);
  using FeedForward = std::variant<MoeBlock, DenseMlpBlock>;

  // Guesses this layer's experts by the hidden state one feed-forward earlier, for a few decode
  // rows: their reads are what a step waits for.
  void guess_experts(StepContext& context, const Batch& batch, const TensorView& hidden) const;
  void report_state(const BatchSegment& segment, StepObserver& observer) const;

  int index_;
  StateKind kv_kind_;
  ResidualSite mixer_site_;
  BoundNorm mixer_norm_;
  Mixer mixer_;
  ResidualSite feed_forward_site_;
  BoundNorm feed_forward_norm_;
  FeedForward feed_forward_;
};

}  // namespace motley
