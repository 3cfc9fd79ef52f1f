#include "model/draft_head.h"

namespace motley {

DraftHead::DraftHead(const DraftSpec& spec, const LoadedWeights& weights, ExpertStore& store,
                     int index)
    : projection_(weights.matrix(spec.projection)),
      embedding_norm_(spec.embedding_norm, weights),
      hidden_norm_(spec.hidden_norm, weights),
      layer_(spec.layer, ResidualSpec{}, weights, store, index, StateKind::kDraftKv,
             DeltaForm::kRecurrent),
      final_norm_(spec.final_norm, weights) {}

Status DraftHead::run(StepContext& context, const Batch& batch,
                      const ConstTensorView& next_embedding, PostNormHidden hidden,
                      PostNormHidden out, StepObserver& observer) const {
  const Arena::Scope scope(context.stream.scratch());
  const int64_t hidden_size = hidden.values.cols();
  const TensorView joined = context.scratch({batch.rows(), 2 * hidden_size});
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
