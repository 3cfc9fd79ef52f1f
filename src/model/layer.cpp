#include "model/layer.h"

#include <type_traits>

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

Layer::Mixer Layer::make_mixer(const LayerSpec& spec, const LoadedWeights& weights, int index,
                               StateKind kv_kind, DeltaForm prefill_form) {
  if (const auto* delta = std::get_if<GatedDeltaSpec>(&spec.mixer)) {
    return GatedDeltaBlock(*delta, weights, index, prefill_form);
  }
  if (const auto* channel = std::get_if<ChannelDeltaSpec>(&spec.mixer)) {
    return ChannelDeltaBlock(*channel, weights, index, prefill_form);
  }
  if (const auto* latent = std::get_if<LatentAttentionSpec>(&spec.mixer)) {
    return LatentAttentionBlock(*latent, weights, index);
  }
  return GatedAttentionBlock(std::get<GatedAttentionSpec>(spec.mixer), weights, index, kv_kind);
}

Layer::Layer(const LayerSpec& spec, const ResidualSpec& residual, const LoadedWeights& weights,
             ExpertStore& store, int index, StateKind kv_kind, DeltaForm prefill_form)
    : index_(index),
      kv_kind_(kv_kind),
      mixer_site_(spec.residual, spec.mixer_hyper, residual, weights),
      mixer_norm_(spec.mixer_norm, weights),
      mixer_(make_mixer(spec, weights, index, kv_kind, prefill_form)),
      feed_forward_site_(spec.residual, spec.feed_forward_hyper, residual, weights),
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
  const ResidualSite::Input mixed = mixer_site_.read(context, hidden);
  const TensorView normed = context.scratch(mixed.x.shape);
  const TensorView out = context.scratch(mixed.x.shape);

  mixer_norm_.apply(context, mixed.x, normed);
  const auto run_mixer = [&](const auto& block) {
    if constexpr (std::is_same_v<std::decay_t<decltype(block)>, LatentAttentionBlock>) {
      return block.run(context, batch, normed, out, observer);
    } else {
      return block.run(context, batch, normed, out);
    }
  };
  MOTLEY_RETURN_IF_ERROR(std::visit(run_mixer, mixer_));
  mixer_site_.write(context, mixed, out, hidden);
  for (const BatchSegment& segment : batch.segments) {
    if (!segment.is_tentative) report_state(segment, observer);
  }

  const ResidualSite::Input input = feed_forward_site_.read(context, hidden);
  feed_forward_norm_.apply(context, input.x, normed);
  if (const auto* moe = std::get_if<MoeBlock>(&feed_forward_)) {
    const auto guess_next = [&] {
      if (next != nullptr) next->guess_experts(context, batch, hidden);
    };
    MOTLEY_RETURN_IF_ERROR(moe->run(context, batch, normed, out, observer, guess_next));
  } else {
    MOTLEY_RETURN_IF_ERROR(std::get<DenseMlpBlock>(feed_forward_).run(context, batch, normed, out));
  }
  feed_forward_site_.write(context, input, out, hidden);

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
  const ResidualSite::Input input = feed_forward_site_.read(context, hidden);
  const TensorView normed = context.scratch(input.x.shape);
  feed_forward_norm_.apply(context, input.x, normed);
  moe->guess(context, batch, normed);
}

void Layer::commit(StepContext& context, SequenceState& state, int32_t rows,
                   StepObserver& observer) const {
  std::visit([&](const auto& block) { block.commit(context, state, rows); }, mixer_);
  report_state({.rows = {.rows = rows, .first_position = {state.length()}}, .state = &state},
               observer);
}

void Layer::report_state(const BatchSegment& segment, StepObserver& observer) const {
  const int64_t first = segment.rows.first_position.value;
  const TokenRange tokens{{first}, {first + segment.rows.rows}};
  const auto report = [&](StateKind kind) {
    observer.state_ready(index_, kind, *segment.state, tokens);
  };
  if (const auto* latent = std::get_if<LatentAttentionBlock>(&mixer_)) {
    report(StateKind::kLatentRows);
    if (latent->has_indexer()) report(StateKind::kIndexKeys);
    if (latent->has_pooled_indexer()) report(StateKind::kIndexRing);
  } else if (std::holds_alternative<GatedAttentionBlock>(mixer_)) {
    report(kv_kind_);
  } else {
    report(StateKind::kConvolutionWindow);
    report(StateKind::kRecurrentMatrix);
  }
}

}  // namespace motley
