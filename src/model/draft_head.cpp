#include "model/draft_head.h"

namespace motley {

DraftHead::DraftHead(const DraftSpec& spec, const LoadedWeights& weights, ExpertStore& store,
                     int index)
    : embedding_(spec.embedding.is_set() ? weights.matrix(spec.embedding) : WeightMatrix{}),
      head_(spec.head.is_set() ? weights.matrix(spec.head) : WeightMatrix{}),
      zero_first_embedding_(spec.zero_first_embedding),
      projection_(weights.matrix(spec.projection)),
      embedding_norm_(spec.embedding_norm, weights),
      hidden_norm_(spec.hidden_norm, weights),
      layer_(spec.layer, ResidualSpec{}, weights, store, index, StateKind::kDraftKv,
             DeltaForm::kRecurrent),
      final_norm_(spec.final_norm, weights) {}

void DraftHead::clear_first(StepContext& context, const Batch& batch,
                            const TensorView& embedding) const {
  std::vector<int32_t> rows;
  for (const BatchSegment& segment : batch.segments) {
    if (segment.rows.first_position.value == 0) rows.push_back(segment.rows.first_row);
  }
  if (!rows.empty()) context.ops.norm.zero_rows(context.stream, rows, embedding);
}

Status DraftHead::run(StepContext& context, const Batch& batch, const TensorView& next_embedding,
                      PostNormHidden hidden, PostNormHidden out, StepObserver& observer) const {
  const Arena::Scope scope(context.stream.scratch());
  const int64_t hidden_size = hidden.values.cols();
  const TensorView joined = context.scratch({batch.rows(), 2 * hidden_size});
  if (zero_first_embedding_) clear_first(context, batch, next_embedding);
  embedding_norm_.apply(context, next_embedding, joined.slice_cols(0, hidden_size));
  hidden_norm_.apply(context, hidden.values, joined.slice_cols(hidden_size, hidden_size));
  const TensorView x = context.scratch({batch.rows(), hidden_size});
  const LinearTarget target{projection_, x};
  context.ops.linear.linear(context.stream, joined, batch.counts, std::span(&target, 1));
  MOTLEY_RETURN_IF_ERROR(layer_.run(context, batch, x, observer, /*next=*/nullptr));
  final_norm_.apply(context, x, out.values);
  return Status::ok();
}

}  // namespace motley
