// Gated delta net: projections, causal convolution, gated delta rule, gated norm, output.
// Source: transformers models/qwen3_next/modeling_qwen3_next.py, Qwen3NextGatedDeltaNet.
#pragma once

#include "io/loader.h"
#include "model/batch.h"
#include "model/step_context.h"
#include "ops/gated_delta.h"
#include "spec/model_spec.h"

namespace motley {

// Which form of the rule prefill rows take. Decode rows are always recurrent.
enum class DeltaForm : uint8_t { kRecurrent, kChunked };

class GatedDeltaBlock {
 public:
  GatedDeltaBlock(const GatedDeltaSpec& spec, const LoadedWeights& weights, int layer,
                  DeltaForm prefill_form);

  // out [rows, hidden] from x [rows, hidden]; advances every segment's window and matrix.
  Status run(StepContext& context, const Batch& batch, const ConstTensorView& x,
             const TensorView& out) const;
  // Takes the first `rows` tentative rows of the last step into the state.
  void commit(StepContext& context, SequenceState& state, int32_t rows) const;

 private:
  ConvolutionSegment window_of(const BatchSegment& segment, DType dtype) const;
  GatedDeltaSegment state_of(const BatchSegment& segment, DType dtype) const;
  void apply_rule(StepContext& context, const Batch& batch, GatedDeltaArgs args) const;

  GatedDeltaSpec spec_;
  GatedDeltaShape shape_;
  int layer_;
  DeltaForm prefill_form_;
  WeightMatrix in_proj_qkv_;
  WeightMatrix in_proj_z_;
  WeightMatrix in_proj_b_;
  WeightMatrix in_proj_a_;
  WeightMatrix out_proj_;
  ConstTensorView convolution_;
  ConstTensorView a_log_;
  ConstTensorView dt_bias_;
  ConstTensorView norm_;
};

}  // namespace motley
