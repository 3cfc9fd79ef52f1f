#include "model/blocks/indexer.h"

#include <algorithm>
#include <array>

namespace motley {

std::vector<RowCacheSegment> row_caches(const Batch& batch, int layer, StateKind kind, int width) {
  std::vector<RowCacheSegment> caches;
  for (const BatchSegment& segment : batch.segments) {
    const StateEntry* entry = segment.state->layout().find(layer, kind);
    MOTLEY_CHECK(entry != nullptr, "a layer without its cache in the layout");
    const RowCacheLayout layout{
        .rows_per_page = StateLayout::kTokensPerPage, .width = width, .dtype = entry->dtype};
    const int64_t length = segment.rows.first_position.value + segment.rows.rows;
    caches.push_back({segment.rows, segment.state->rows(layer, kind, layout, length)});
  }
  return caches;
}

Indexer::Indexer(const IndexerSpec& spec, const LoadedWeights& weights, int layer)
    : spec_(spec),
      layer_(layer),
      q_proj_(weights.matrix(spec.q_proj)),
      k_proj_(weights.matrix(spec.k_proj)),
      weights_proj_(weights.matrix(spec.weights_proj)),
      k_norm_weight_(weights.vector(spec.k_norm_weight)),
      k_norm_bias_(weights.vector(spec.k_norm_bias)) {}

void Indexer::select(StepContext& context, const Batch& batch, const ConstTensorView& x,
                     const ConstTensorView& q_latent, StepObserver& observer,
                     const KeySelection& selection) const {
  const Arena::Scope scope(context.stream.scratch());
  const Queries queries = project(context, batch, x, q_latent);
  for (const RowCacheSegment& segment :
       row_caches(batch, layer_, StateKind::kIndexKeys, spec_.head_dim)) {
    score_and_choose(context, batch, queries, segment, observer, selection);
  }
  if (observer.wants_activations()) {
    context.stream.synchronize();
    observer.key_selection(layer_, batch, selection);
  }
}

Indexer::Queries Indexer::project(StepContext& context, const Batch& batch,
                                  const ConstTensorView& x, const ConstTensorView& q_latent) const {
  const int64_t rows = batch.rows();
  const TensorView q = context.scratch({rows, spec_.heads, spec_.head_dim});
  const TensorView weights = context.scratch({rows, spec_.heads});
  const TensorView k = context.scratch({rows, 1, spec_.head_dim});
  const auto flat = [](TensorView view) {
    view.shape = {view.rows(), view.cols()};
    return view;
  };
  const auto linear = [&](const ConstTensorView& input, std::span<const LinearTarget> targets) {
    context.ops.linear.linear(context.stream, input, batch.counts, targets);
  };
  linear(q_latent, std::array{LinearTarget{q_proj_, flat(q)}});
  linear(x, std::array{LinearTarget{k_proj_, flat(k)}, LinearTarget{weights_proj_, weights}});
  context.ops.index.layer_norm(context.stream, flat(k), k_norm_weight_, k_norm_bias_,
                               spec_.k_norm_epsilon, flat(k));
  if (spec_.rotary_dim > 0) {
    std::vector<RowSegment> segments;
    for (const BatchSegment& segment : batch.segments) segments.push_back(segment.rows);
    for (const TensorView& view : {q, k}) {
      context.ops.latent.rotate(
          context.stream, {.x = view,
                           .rotary = {.rotary_dim = spec_.rotary_dim, .theta = spec_.rope_theta},
                           .interleaved = spec_.interleaved,
                           .segments = segments,
                           .y = view});
    }
  }
  context.ops.latent.row_write(context.stream, flat(k),
                               row_caches(batch, layer_, StateKind::kIndexKeys, spec_.head_dim));
  return {q, weights};
}

void Indexer::score_and_choose(StepContext& context, const Batch& batch, const Queries& queries,
                               const RowCacheSegment& all, StepObserver& observer,
                               const KeySelection& selection) const {
  const int64_t first = all.rows.first_position.value;
  const auto see_all =
      static_cast<int32_t>(std::clamp<int64_t>(spec_.top_k - first, 0, all.rows.rows));
  for (int32_t t = 0; t < see_all; ++t) {
    *selection.counts.row<int32_t>(all.rows.first_row + t) = kEveryKey;
  }
  const int64_t keys = first + all.rows.rows;
  const auto piece = static_cast<int32_t>(std::max<int64_t>(1, kMostScores / keys));
  for (int32_t begin = see_all; begin < all.rows.rows; begin += piece) {
    const Arena::Scope scope(context.stream.scratch());
    const int32_t rows = std::min(piece, all.rows.rows - begin);
    const int64_t first_row = all.rows.first_row + begin;
    const TensorView scores = context.scratch({rows, first + begin + rows});
    const TensorView candidates = scratch_view(context.stream, DType::kI32, {rows});
    for (int32_t t = 0; t < rows; ++t) {
      *candidates.row<int32_t>(t) = static_cast<int32_t>(first + begin + t + 1);
    }
    // The piece's rows alone, counted from its first.
    const RowCacheSegment segment{
        {.role = all.rows.role, .first_row = 0, .rows = rows, .first_position = {first + begin}},
        all.cache};
    context.ops.index.scores(context.stream,
                             {.q = queries.q.slice_rows(first_row, rows),
                              .weights = queries.weights.slice_rows(first_row, rows),
                              .scale = spec_.weight_scale,
                              .segments = std::span(&segment, 1),
                              .scores = scores});
    ConstTensorView forced;
    if (observer.wants_activations()) {
      context.stream.synchronize();
      forced = observer.index_scores(layer_, batch,
                                     {.first_row = first_row,
                                      .scores = scores,
                                      .candidates = candidates,
                                      .top_k = spec_.top_k,
                                      .width = spec_.width()});
    }
    const KeySelection part = selection.slice_rows(first_row, rows);
    context.ops.index.select(context.stream, {.scores = scores,
                                              .candidates = candidates,
                                              .forced = forced,
                                              .chosen = part.positions,
                                              .counts = part.counts});
  }
}

}  // namespace motley
