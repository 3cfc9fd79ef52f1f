#include "model/decoder.h"

#include <algorithm>

namespace motley {
namespace {

int64_t shared_selection_width(const ModelSpec& spec) {
  int64_t width = 0;
  bool shared = false;
  for (const LayerSpec& layer : spec.layers) {
    const auto* latent = std::get_if<LatentAttentionSpec>(&layer.mixer);
    if (latent == nullptr) continue;
    shared |= latent->keys == KeySource::kShared;
    if (latent->keys == KeySource::kOwn) width = std::max<int64_t>(width, latent->indexer.width());
  }
  return shared ? width : 0;
}

}  // namespace

Decoder::Decoder(const ModelSpec& spec, const LoadedWeights& weights, ExpertStore& store,
                 DeltaForm prefill_form)
    : hidden_size_(spec.hidden_size),
      residual_(spec.residual),
      embedding_(weights.matrix(spec.embedding)),
      final_norm_(spec.final_norm, weights),
      head_(weights.matrix(spec.head)),
      selection_width_(shared_selection_width(spec)) {
  int index = 0;
  layers_.reserve(spec.layers.size());
  for (const LayerSpec& layer : spec.layers) {
    layers_.emplace_back(layer, spec.residual, weights, store, index++, StateKind::kPagedKv,
                         prefill_form);
  }
  for (const DraftSpec& draft : spec.drafts) drafts_.emplace_back(draft, weights, store, index++);
}

void Decoder::embed(StepContext& context, std::span<const int32_t> tokens,
                    const TensorView& hidden) const {
  if (residual_.streams == 1) {
    return context.ops.linear.embed(context.stream, embedding_, tokens, hidden);
  }
  const Arena::Scope scope(context.stream.scratch());
  const TensorView embedded = context.scratch({hidden.rows(), hidden_size_});
  context.ops.linear.embed(context.stream, embedding_, tokens, embedded);
  context.ops.hyper.spread(context.stream, embedded, hidden);
}

Status Decoder::run_layer(int layer, StepContext& context, const Batch& batch,
                          const TensorView& hidden, StepObserver& observer) const {
  const auto index = static_cast<size_t>(layer);
  const Layer* next = index + 1 < layers_.size() ? &layers_[index + 1] : nullptr;
  return layers_[index].run(context, batch, hidden, observer, next);
}

Status Decoder::run_layers(StepContext& context, const Batch& batch, const TensorView& hidden,
                           StepObserver& observer) const {
  const Arena::Scope scope(context.stream.scratch());
  StepContext step = context;
  if (selection_width_ > 0) step.selection = step.scratch_selection(batch.rows(), selection_width_);
  for (int layer = 0; layer < layers(); ++layer) {
    MOTLEY_RETURN_IF_ERROR(run_layer(layer, step, batch, hidden, observer));
  }
  for (const BatchSegment& segment : batch.segments) {
    if (segment.is_tentative) continue;
    segment.state->set_length(segment.rows.first_position.value + segment.rows.rows);
  }
  return Status::ok();
}

void Decoder::commit(StepContext& context, SequenceState& state, int32_t rows,
                     StepObserver& observer) const {
  if (rows == 0) return;
  for (const Layer& layer : layers_) layer.commit(context, state, rows, observer);
  state.set_length(state.length() + rows);
}

PostNormHidden Decoder::final_norm(StepContext& context, PreNormHidden hidden,
                                   const TensorView& y) const {
  if (residual_.streams == 1) {
    final_norm_.apply(context, hidden.values, y);
  } else {
    context.ops.hyper.mean(context.stream, hidden.values, y);
    final_norm_.apply(context, y, y);
  }
  return {y};
}

void Decoder::logits(StepContext& context, PostNormHidden hidden, RowCounts counts,
                     const TensorView& logits) const {
  const LinearTarget target{head_, logits};
  context.ops.linear.linear(context.stream, hidden.values, counts, std::span(&target, 1));
}

Status Decoder::run_draft(int index, StepContext& context, const Batch& next_tokens,
                          PostNormHidden hidden, PostNormHidden out, StepObserver& observer) const {
  const Arena::Scope scope(context.stream.scratch());
  const DraftHead& draft = drafts_[static_cast<size_t>(index)];
  const TensorView embedding = context.scratch({next_tokens.rows(), hidden_size_});
  const WeightMatrix& table = draft.embedding().is_empty() ? embedding_ : draft.embedding();
  context.ops.linear.embed(context.stream, table, next_tokens.tokens, embedding);
  return draft.run(context, next_tokens, embedding, hidden, out, observer);
}

void Decoder::draft_logits(int index, StepContext& context, PostNormHidden hidden, RowCounts counts,
                           const TensorView& logits) const {
  const WeightMatrix& own = drafts_[static_cast<size_t>(index)].head();
  const LinearTarget target{own.is_empty() ? head_ : own, logits};
  context.ops.linear.linear(context.stream, hidden.values, counts, std::span(&target, 1));
}

std::vector<std::vector<ExpertWeights>> model_experts(const ModelSpec& spec,
                                                      const LoadedWeights& weights) {
  std::vector<std::vector<ExpertWeights>> layers;
  const auto add = [&](const LayerSpec& layer) {
    const auto* moe = std::get_if<MoeSpec>(&layer.feed_forward);
    layers.push_back(moe != nullptr ? layer_experts(*moe, weights) : std::vector<ExpertWeights>{});
  };
  for (const LayerSpec& layer : spec.layers) add(layer);
  for (const DraftSpec& draft : spec.drafts) add(draft.layer);
  return layers;
}

}  // namespace motley
