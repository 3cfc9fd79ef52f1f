#include "model/blocks/gated_delta.h"

#include <array>
#include <vector>

#include "model/blocks/tentative_rows.h"

namespace motley {

GatedDeltaBlock::GatedDeltaBlock(const GatedDeltaSpec& spec, const LoadedWeights& weights,
                                 int layer, DeltaForm prefill_form)
    : spec_(spec),
      shape_{.key_heads = spec.key_heads,
             .value_heads = spec.value_heads,
             .key_head_dim = spec.key_head_dim,
             .value_head_dim = spec.value_head_dim},
      layer_(layer),
      prefill_form_(prefill_form),
      in_proj_qkv_(weights.matrix(spec.in_proj_qkv)),
      in_proj_z_(weights.matrix(spec.in_proj_z)),
      in_proj_b_(weights.matrix(spec.in_proj_b)),
      in_proj_a_(weights.matrix(spec.in_proj_a)),
      out_proj_(weights.matrix(spec.out_proj)),
      convolution_(weights.convolution(spec.convolution)),
      a_log_(weights.vector(spec.a_log)),
      dt_bias_(weights.vector(spec.dt_bias)),
      norm_(weights.vector(spec.norm.weight)) {}

Status GatedDeltaBlock::run(StepContext& context, const Batch& batch, const ConstTensorView& x,
                            const TensorView& out) const {
  const Arena::Scope scope(context.stream.scratch());
  const int64_t rows = batch.rows();
  const DType dtype = context.ops.activation_dtype;

  const TensorView u = context.scratch({rows, shape_.conv_dim()});
  const TensorView z = context.scratch({rows, shape_.value_dim()});
  const TensorView b = context.scratch({rows, shape_.value_heads});
  const TensorView a = context.scratch({rows, shape_.value_heads});
  const std::array targets = {LinearTarget{in_proj_qkv_, u}, LinearTarget{in_proj_z_, z},
                              LinearTarget{in_proj_b_, b}, LinearTarget{in_proj_a_, a}};
  context.ops.linear.linear(context.stream, x, batch.counts, targets);

  const TensorView qkv = context.scratch({rows, shape_.conv_dim()});
  std::vector<ConvolutionSegment> windows;
  for (const BatchSegment& segment : batch.segments) {
    windows.push_back(window_of(segment, dtype));
  }
  context.ops.convolution.causal_convolution(context.stream, u, convolution_, windows, qkv);

  const TensorView o = context.scratch({rows, shape_.value_dim()});
  apply_rule(context, batch,
             {.shape = shape_,
              .qkv = qkv,
              .beta = b,
              .decay = a,
              .a_log = a_log_,
              .dt_bias = dt_bias_,
              .out = o});

  context.ops.norm.gated_rms_norm(context.stream, o, z, norm_, {.epsilon = spec_.norm.epsilon}, o);
  const LinearTarget target{out_proj_, out};
  context.ops.linear.linear(context.stream, o, batch.counts, std::span(&target, 1));
  return all_reduce(context, out);
}

ConvolutionSegment GatedDeltaBlock::window_of(const BatchSegment& segment, DType dtype) const {
  std::byte* window = segment.state->fixed(layer_, StateKind::kConvolutionWindow);
  ConvolutionSegment result{
      segment.rows, make_view(window, dtype, {spec_.conv_kernel - 1, shape_.conv_dim()}), {}};
  if (segment.is_tentative) {
    result.ring = window_ring(*segment.state, layer_, shape_.conv_dim(), dtype);
  }
  return result;
}

GatedDeltaSegment GatedDeltaBlock::state_of(const BatchSegment& segment, DType dtype) const {
  SequenceState& state = *segment.state;
  GatedDeltaSegment result;
  result.rows = segment.rows;
  result.state = make_view(state.fixed(layer_, StateKind::kRecurrentMatrix), dtype,
                           {shape_.value_heads, shape_.key_head_dim, shape_.value_head_dim});
  if (segment.is_tentative) {
    result.ring = replay_ring(state, layer_,
                              {shape_.key_dim(), shape_.value_dim(), shape_.value_heads}, dtype);
  }
  if (prefill_form_ == DeltaForm::kChunked) {
    std::byte* carry = state.fixed(layer_, StateKind::kDeltaCarry);
    const auto take = [&](int64_t cols) {
      const TensorView view = make_view(carry, dtype, {kDeltaBlock, cols});
      carry += kDeltaBlock * cols * dtype_bytes(dtype);
      return view;
    };
    result.carry.rows = state.carry_rows(layer_);
    result.carry.keys = take(shape_.key_dim());
    result.carry.updates = take(shape_.value_dim());
    result.carry.decays = take(shape_.value_heads);
  }
  return result;
}

void GatedDeltaBlock::commit(StepContext& context, SequenceState& state, int32_t rows) const {
  const BatchSegment segment{.rows = {.rows = rows}, .state = &state, .is_tentative = true};
  const DType dtype = context.ops.activation_dtype;
  context.ops.convolution.commit(context.stream, window_of(segment, dtype));
  context.ops.gated_delta.commit(context.stream, shape_, state_of(segment, dtype));
}

void GatedDeltaBlock::apply_rule(StepContext& context, const Batch& batch,
                                 GatedDeltaArgs args) const {
  const GatedDeltaOps& ops = context.ops.gated_delta;
  std::vector<GatedDeltaSegment> recurrent;
  std::vector<GatedDeltaSegment> chunked;
  for (const BatchSegment& segment : batch.segments) {
    const GatedDeltaSegment with_state = state_of(segment, args.qkv.dtype);
    const bool is_prefill = segment.rows.role == RowRole::kPrefill;
    if (is_prefill && prefill_form_ == DeltaForm::kChunked) {
      chunked.push_back(with_state);
      continue;
    }
    if (!with_state.carry.is_empty() && *with_state.carry.rows > 0) {
      ops.flush_carry(context.stream, shape_, with_state);
    }
    recurrent.push_back(with_state);
  }
  if (!recurrent.empty()) {
    args.segments = recurrent;
    ops.recurrent(context.stream, args);
  }
  if (!chunked.empty()) {
    args.segments = chunked;
    ops.chunked(context.stream, args);
  }
}

}  // namespace motley
