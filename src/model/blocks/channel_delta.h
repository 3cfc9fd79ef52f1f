// Kimi delta attention: projections, causal convolutions of q, k and v, delta rule with a decay per
// key channel, norm and sigmoid gate of the output.
// Source: fla-org/flash-linear-attention fla/layers/kda.py; Kimi Linear technical report.
#pragma once

#include "io/loader.h"
#include "model/batch.h"
#include "model/blocks/gated_delta.h"
#include "model/step_context.h"
#include "ops/channel_delta.h"
#include "spec/model_spec.h"

namespace motley {

class ChannelDeltaBlock {
 public:
  ChannelDeltaBlock(const ChannelDeltaSpec& spec, const LoadedWeights& weights, int layer,
                    DeltaForm prefill_form);

  // out [rows, hidden] from x [rows, hidden]; advances every segment's window and matrix.
  Status run(StepContext& context, const Batch& batch, const ConstTensorView& x,
             const TensorView& out) const;
  // Takes the first `rows` tentative rows of the last step into the state.
  void commit(StepContext& context, SequenceState& state, int32_t rows) const;

 private:
  ConvolutionSegment window_of(const BatchSegment& segment, DType dtype) const;
  ChannelDeltaSegment state_of(const BatchSegment& segment, DType dtype) const;
  void apply_rule(StepContext& context, const Batch& batch, ChannelDeltaArgs args) const;

  ChannelDeltaSpec spec_;
  ChannelDeltaShape shape_;
  int layer_;
  DeltaForm prefill_form_;
  WeightMatrix q_proj_;
  WeightMatrix k_proj_;
  WeightMatrix v_proj_;
  WeightMatrix decay_in_proj_;
  WeightMatrix decay_proj_;
  WeightMatrix beta_proj_;
  WeightMatrix gate_in_proj_;
  WeightMatrix gate_proj_;
  WeightMatrix out_proj_;
  ConstTensorView convolution_;
  ConstTensorView a_log_;
  ConstTensorView dt_bias_;
  ConstTensorView norm_;
};

}  // namespace motley
