#include "model/blocks/channel_delta.h"

#include <array>
#include <vector>

#include "model/blocks/tentative_rows.h"

namespace motley {

ChannelDeltaBlock::ChannelDeltaBlock(const ChannelDeltaSpec& spec, const LoadedWeights& weights,
                                     int layer, DeltaForm prefill_form)
    : spec_(spec),
      shape_{.heads = spec.heads,
             .key_head_dim = spec.key_head_dim,
             .value_head_dim = spec.value_head_dim},
      layer_(layer),
      prefill_form_(prefill_form),
      q_proj_(weights.matrix(spec.q_proj)),
      k_proj_(weights.matrix(spec.k_proj)),
      v_proj_(weights.matrix(spec.v_proj)),
      decay_in_proj_(weights.matrix(spec.decay_in_proj)),
      decay_proj_(weights.matrix(spec.decay_proj)),
      beta_proj_(weights.matrix(spec.beta_proj)),
      gate_in_proj_(weights.matrix(spec.gate_in_proj)),
      gate_proj_(weights.matrix(spec.gate_proj)),
      out_proj_(weights.matrix(spec.out_proj)),
      convolution_(weights.convolution(spec.convolution)),
      a_log_(weights.vector(spec.a_log)),
      dt_bias_(weights.vector(spec.dt_bias)),
      norm_(weights.vector(spec.norm.weight)) {}

Status ChannelDeltaBlock::run(StepContext& context, const Batch& batch, const ConstTensorView& x,
                              const TensorView& out) const {
  const Arena::Scope scope(context.stream.scratch());
  const int64_t rows = batch.rows();
  const int64_t key_dim = shape_.key_dim();
  const int64_t value_dim = shape_.value_dim();
  const auto linear = [&](const ConstTensorView& input, std::span<const LinearTarget> targets) {
    context.ops.linear.linear(context.stream, input, batch.counts, targets);
  };

  const TensorView u = context.scratch({rows, shape_.conv_dim()});
  const TensorView b = context.scratch({rows, shape_.heads});
  const TensorView decay_in = context.scratch({rows, decay_in_proj_.rows});
  const TensorView gate_in = context.scratch({rows, gate_in_proj_.rows});
  linear(x, std::array{LinearTarget{q_proj_, u.slice_cols(0, key_dim)},
                       LinearTarget{k_proj_, u.slice_cols(key_dim, key_dim)},
                       LinearTarget{v_proj_, u.slice_cols(2 * key_dim, value_dim)},
                       LinearTarget{beta_proj_, b}, LinearTarget{decay_in_proj_, decay_in},
                       LinearTarget{gate_in_proj_, gate_in}});
  const TensorView a = context.scratch({rows, key_dim});
  const TensorView z = context.scratch({rows, value_dim});
  linear(decay_in, std::array{LinearTarget{decay_proj_, a}});
  linear(gate_in, std::array{LinearTarget{gate_proj_, z}});

  const TensorView qkv = context.scratch({rows, shape_.conv_dim()});
  std::vector<ConvolutionSegment> windows;
  for (const BatchSegment& segment : batch.segments) {
    windows.push_back(window_of(segment, context.ops.activation_dtype));
  }
  context.ops.convolution.causal_convolution(context.stream, u, convolution_, windows, qkv);

  const TensorView o = context.scratch({rows, value_dim});
  apply_rule(context, batch,
             {.shape = shape_,
              .gate = spec_.bounded ? DecayGate::kBounded : DecayGate::kSoftplus,
              .lower_bound = spec_.lower_bound,
              .qkv = qkv,
              .beta = b,
              .decay = a,
              .a_log = a_log_,
              .dt_bias = dt_bias_,
              .out = o});

  // The norm is over each head's values.
  const TensorView heads =
      make_view(o.data, o.dtype, {rows * shape_.heads, shape_.value_head_dim}, o.space);
  context.ops.norm.rms_norm(context.stream, heads, norm_, {.epsilon = spec_.norm.epsilon}, heads);
  context.ops.norm.sigmoid_multiply(context.stream, z, o);
  linear(o, std::array{LinearTarget{out_proj_, out}});
  return all_reduce(context, out);
}

ConvolutionSegment ChannelDeltaBlock::window_of(const BatchSegment& segment, DType dtype) const {
  std::byte* window = segment.state->fixed(layer_, StateKind::kConvolutionWindow);
  ConvolutionSegment result{
      segment.rows, make_view(window, dtype, {spec_.conv_kernel - 1, shape_.conv_dim()}), {}};
  if (segment.is_tentative) {
    result.ring = window_ring(*segment.state, layer_, shape_.conv_dim(), dtype);
  }
  return result;
}

ChannelDeltaSegment ChannelDeltaBlock::state_of(const BatchSegment& segment, DType dtype) const {
  SequenceState& state = *segment.state;
  ChannelDeltaSegment result;
  result.rows = segment.rows;
  result.state = make_view(state.fixed(layer_, StateKind::kRecurrentMatrix), dtype,
                           {shape_.heads, shape_.key_head_dim, shape_.value_head_dim});
  if (segment.is_tentative) {
    result.ring =
        replay_ring(state, layer_, {shape_.key_dim(), shape_.value_dim(), shape_.key_dim()}, dtype);
  }
  if (prefill_form_ == DeltaForm::kChunked) {
    std::byte* carry = state.fixed(layer_, StateKind::kDeltaCarry);
    const auto take = [&](int64_t rows, int64_t cols) {
      const TensorView view = make_view(carry, dtype, {rows, cols});
      carry += rows * cols * dtype_bytes(dtype);
      return view;
    };
    result.carry.rows = state.carry_rows(layer_);
    result.carry.keys = take(kDeltaBlock, shape_.key_dim());
    result.carry.updates = take(kDeltaBlock, shape_.value_dim());
    result.carry.decay = take(1, shape_.key_dim());
  }
  return result;
}

void ChannelDeltaBlock::commit(StepContext& context, SequenceState& state, int32_t rows) const {
  const BatchSegment segment{.rows = {.rows = rows}, .state = &state, .is_tentative = true};
  const DType dtype = context.ops.activation_dtype;
  context.ops.convolution.commit(context.stream, window_of(segment, dtype));
  context.ops.channel_delta.commit(context.stream, shape_, state_of(segment, dtype));
}

void ChannelDeltaBlock::apply_rule(StepContext& context, const Batch& batch,
                                   ChannelDeltaArgs args) const {
  const ChannelDeltaOps& ops = context.ops.channel_delta;
  std::vector<ChannelDeltaSegment> recurrent;
  std::vector<ChannelDeltaSegment> chunked;
  for (const BatchSegment& segment : batch.segments) {
    const ChannelDeltaSegment with_state = state_of(segment, args.qkv.dtype);
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
