#include "model/layer.h"

namespace motley {
namespace {

// More rows want most experts anyway.
constexpr int64_t kMostGuessedRows = 8;

}  // namespace

BoundNorm::BoundNorm(const NormSpec& spec, const LoadedWeights& weights)
    : weight(weights.vector(spec.weight)),
      params{.epsilon = spec.epsilon, .weight_offset = spec.weight_offset} {}

void BoundNorm::apply(StepContext& context, const ConstTensorView& x, const TensorView& y) const {
  context.ops.norm.rms_norm(context.stream, x, weight, params, y);
}

Layer::Layer(const LayerSpec& spec, const LoadedWeights& weights, ExpertStore& store, int index,
             StateKind kv_kind, DeltaForm prefill_form)
    : index_(index),
      kv_kind_(kv_kind),
      mixer_norm_(spec.mixer_norm, weights),
      mixer_([&]() -> Mixer {
        if (const auto* delta = std::get_if<GatedDeltaSpec>(&spec.mixer)) {
          return GatedDeltaBlock(*delta, weights, index, prefill_form);
        }
        return GatedAttentionBlock(std::get<GatedAttentionSpec>(spec.mixer), weights, index,
                                   kv_kind);
      }()),
      feed_forward_norm_(spec.feed_forward_norm, weights),
      feed_forward_([&]() -> FeedForward {
        if (const auto* moe = std::get_if<MoeSpec>(&spec.feed_forward)) {
          return MoeBlock(*moe, weights, store, index);
        }
        return DenseMlpBlock(std::get<DenseMlpSpec>(spec.feed_forward), weights);
      }()) {}

Status Layer::run(StepContext& context, const Batch& batch, const TensorView& hidden,
                  StepObserver& observer, const Layer* next) const {
  const Arena::Scope scope(context.stream.scratch());
  const TensorView normed = context.scratch(hidden.shape);
  const TensorView out = context.scratch(hidden.shape);

  mixer_norm_.apply(context, hidden, normed);
  if (const auto* delta = std::get_if<GatedDeltaBlock>(&mixer_)) {
    MOTLEY_RETURN_IF_ERROR(delta->run(context, batch, normed, out));
  } else {
    const auto& attention = std::get<GatedAttentionBlock>(mixer_);
    MOTLEY_RETURN_IF_ERROR(attention.run(context, batch, normed, out));
  }
  context.ops.norm.add(context.stream, out, hidden);
  report_state(batch, observer);

  feed_forward_norm_.apply(context, hidden, normed);
  if (const auto* moe = std::get_if<MoeBlock>(&feed_forward_)) {
    const auto guess_next = [&] {
      if (next != nullptr) next->guess_experts(context, batch, hidden);
    };
    MOTLEY_RETURN_IF_ERROR(moe->run(context, batch, normed, out, observer, guess_next));
  } else {
    MOTLEY_RETURN_IF_ERROR(std::get<DenseMlpBlock>(feed_forward_).run(context, batch, normed, out));
  }
  context.ops.norm.add(context.stream, out, hidden);

  if (observer.wants_activations()) {
    context.stream.synchronize();
    observer.layer_output(index_, batch, hidden);
  }
  return Status::ok();
}

void Layer::guess_experts(StepContext& context, const Batch& batch,
                          const TensorView& hidden) const {
  const auto* moe = std::get_if<MoeBlock>(&feed_forward_);
  if (moe == nullptr || batch.counts.prefill > 0 || batch.rows() > kMostGuessedRows) return;
  const Arena::Scope scope(context.stream.scratch());
  const TensorView normed = context.scratch(hidden.shape);
  feed_forward_norm_.apply(context, hidden, normed);
  moe->guess(context, batch, normed);
}

void Layer::report_state(const Batch& batch, StepObserver& observer) const {
  const bool is_delta = std::holds_alternative<GatedDeltaBlock>(mixer_);
  for (const BatchSegment& segment : batch.segments) {
    const int64_t first = segment.rows.first_position.value;
    const TokenRange tokens{{first}, {first + segment.rows.rows}};
    if (is_delta) {
      observer.state_ready(index_, StateKind::kConvolutionWindow, *segment.state, tokens);
      observer.state_ready(index_, StateKind::kRecurrentMatrix, *segment.state, tokens);
    } else {
      observer.state_ready(index_, kv_kind_, *segment.state, tokens);
    }
  }
}

}  // namespace motley
