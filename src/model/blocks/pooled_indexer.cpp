#include "model/blocks/pooled_indexer.h"

#include <algorithm>
#include <array>

#include "model/blocks/indexer.h"

namespace motley {
namespace {

TensorView flat(TensorView view) {
  view.shape = {view.rows(), view.cols()};
  return view;
}

// The pools of tokens that a row is made to see; rows that are free stay so. What a caller forces
// comes from outside: tokens beyond the pools there is room for are left out.
TensorView forced_pools(StepContext& context, const ConstTensorView& tokens, int pool,
                        int top_pools, int64_t first_position) {
  const TensorView pools = scratch_view(context.stream, DType::kI32, {tokens.rows(), top_pools});
  for (int64_t row = 0; row < tokens.rows(); ++row) {
    const int32_t* from = tokens.row<int32_t>(row);
    int32_t* to = pools.row<int32_t>(row);
    const int64_t complete = (first_position + row + 1) / pool;
    int count = 0;
    for (int64_t i = 0; i < tokens.cols() && from[i] >= 0 && count < top_pools; ++i) {
      const int32_t p = from[i] / pool;
      if (p < complete && (count == 0 || to[count - 1] < p)) to[count++] = p;
    }
    std::fill(to + count, to + top_pools, -1);
  }
  return pools;
}

}  // namespace

PooledIndexer::PooledIndexer(const IndexerSpec& spec, const LoadedWeights& weights, int layer)
    : spec_(spec),
      layer_(layer),
      top_pools_(spec.top_k / spec.pool),
      q_proj_(weights.matrix(spec.q_proj)),
      k_proj_(weights.matrix(spec.k_proj)),
      weights_proj_(weights.matrix(spec.weights_proj)),
      gate_proj_(weights.matrix(spec.pool_gate)),
      offset_(weights.table(spec.pool_offset)),
      k_norm_weight_(weights.vector(spec.k_norm_weight)),
      k_norm_bias_(weights.vector(spec.k_norm_bias)) {
  MOTLEY_CHECK(spec.top_k % spec.pool == 0 && spec.rotary_dim == 0,
               "a pooled indexer chooses whole pools and rotates nothing");
}

void PooledIndexer::select(StepContext& context, const Batch& batch, const ConstTensorView& x,
                           const ConstTensorView& q_latent, StepObserver& observer,
                           const KeySelection& selection) const {
  const Arena::Scope scope(context.stream.scratch());
  const Queries queries = project(context, batch, x, q_latent);
  for (const BatchSegment& segment : batch.segments) {
    choose(context, batch, queries, pools_of(segment), observer, selection);
  }
  if (observer.wants_activations()) {
    context.stream.synchronize();
    observer.key_selection(layer_, batch, selection);
  }
}

PooledIndexer::Queries PooledIndexer::project(StepContext& context, const Batch& batch,
                                              const ConstTensorView& x,
                                              const ConstTensorView& q_latent) const {
  const int64_t rows = batch.rows();
  const TensorView q = context.scratch({rows, spec_.heads, spec_.head_dim});
  const TensorView weights = context.scratch({rows, spec_.heads});
  const TensorView k = context.scratch({rows, spec_.head_dim});
  const TensorView gate = context.scratch({rows, spec_.head_dim});
  const auto linear = [&](const ConstTensorView& input, std::span<const LinearTarget> targets) {
    context.ops.linear.linear(context.stream, input, batch.counts, targets);
  };
  linear(q_latent, std::array{LinearTarget{q_proj_, flat(q)}});
  linear(x, std::array{LinearTarget{k_proj_, k}, LinearTarget{gate_proj_, gate},
                       LinearTarget{weights_proj_, weights}});
  context.ops.index.layer_norm(context.stream, k, k_norm_weight_, k_norm_bias_,
                               spec_.k_norm_epsilon, k);
  keep_keys(context, batch, k, gate);
  return {q, weights};
}

void PooledIndexer::keep_keys(StepContext& context, const Batch& batch, const ConstTensorView& k,
                              const ConstTensorView& gate) const {
  std::vector<IndexPoolSegment> rings;
  std::vector<RowCacheSegment> written;
  int32_t pools = 0;
  for (const BatchSegment& segment : batch.segments) {
    std::byte* ring = segment.state->fixed(layer_, StateKind::kIndexRing);
    rings.push_back({segment.rows, make_view(ring, context.ops.activation_dtype,
                                             {index_ring_rows(spec_.pool), 2 * spec_.head_dim})});
    const PoolRange range = completed_pools(segment.rows, spec_.pool);
    if (range.count == 0) continue;
    RowCacheSegment pooled = pools_of(segment);
    pooled.rows.first_row = pools;
    pooled.rows.rows = static_cast<int32_t>(range.count);
    pooled.rows.first_position = {range.first};
    written.push_back(pooled);
    pools += pooled.rows.rows;
  }
  const TensorView keys = context.scratch({std::max(pools, 1), spec_.head_dim});
  context.ops.index_pool.pool_keys(context.stream, k, gate, offset_, rings, keys);
  context.ops.latent.row_write(context.stream, keys, written);
}

// The keys of all pools that the segment's rows leave complete.
RowCacheSegment PooledIndexer::pools_of(const BatchSegment& segment) const {
  const StateEntry* entry = segment.state->layout().find(layer_, StateKind::kIndexKeys);
  MOTLEY_CHECK(entry != nullptr, "a layer without its cache in the layout");
  const RowCacheLayout layout{.rows_per_page = StateLayout::rows_per_page(spec_.pool),
                              .width = spec_.head_dim,
                              .dtype = entry->dtype};
  const int64_t tokens = segment.rows.first_position.value + segment.rows.rows;
  return {segment.rows,
          segment.state->rows(layer_, StateKind::kIndexKeys, layout, tokens / spec_.pool)};
}

void PooledIndexer::choose(StepContext& context, const Batch& batch, const Queries& queries,
                           const RowCacheSegment& all, StepObserver& observer,
                           const KeySelection& selection) const {
  const int64_t first = all.rows.first_position.value;
  int32_t see_all = 0;
  if (spec_.pool_tail) {  // every pool and the tail: nothing to choose while there are so few
    const int64_t tokens = (int64_t{top_pools_} + 1) * spec_.pool - 1;
    see_all = static_cast<int32_t>(std::clamp<int64_t>(tokens - first, 0, all.rows.rows));
  }
  for (int32_t t = 0; t < see_all; ++t) {
    *selection.counts.row<int32_t>(all.rows.first_row + t) = kEveryKey;
  }
  const int64_t pools = std::max<int64_t>(1, (first + all.rows.rows) / spec_.pool);
  const auto most = static_cast<int32_t>(std::max<int64_t>(1, Indexer::kMostScores / pools));
  for (int32_t begin = see_all; begin < all.rows.rows; begin += most) {
    const RowCacheSegment piece{{.role = all.rows.role,
                                 .first_row = 0,
                                 .rows = std::min(most, all.rows.rows - begin),
                                 .first_position = {first + begin}},
                                all.cache};
    choose_piece(context, batch, queries, piece, all.rows.first_row + begin, observer, selection);
  }
}

// `piece` counts its rows from `first_row` of the batch.
void PooledIndexer::choose_piece(StepContext& context, const Batch& batch, const Queries& queries,
                                 const RowCacheSegment& piece, int64_t first_row,
                                 StepObserver& observer, const KeySelection& selection) const {
  const Arena::Scope scope(context.stream.scratch());
  const int32_t rows = piece.rows.rows;
  const int64_t first = piece.rows.first_position.value;
  const int64_t pools = (first + rows) / spec_.pool;
  const TensorView scores = context.scratch({rows, std::max<int64_t>(1, pools)});
  const TensorView candidates = scratch_view(context.stream, DType::kI32, {rows});
  for (int32_t t = 0; t < rows; ++t) {
    *candidates.row<int32_t>(t) = static_cast<int32_t>((first + t + 1) / spec_.pool);
  }
  context.ops.index.scores(context.stream, {.q = queries.q.slice_rows(first_row, rows),
                                            .weights = queries.weights.slice_rows(first_row, rows),
                                            .scale = spec_.weight_scale,
                                            .segments = std::span(&piece, 1),
                                            .tokens_per_key = spec_.pool,
                                            .scores = scores});
  ConstTensorView forced;
  if (observer.wants_activations()) {
    context.stream.synchronize();
    const ConstTensorView tokens = observer.index_scores(layer_, batch,
                                                         {.first_row = first_row,
                                                          .scores = scores,
                                                          .candidates = candidates,
                                                          .top_k = top_pools_,
                                                          .width = spec_.width()});
    if (!tokens.is_empty()) forced = forced_pools(context, tokens, spec_.pool, top_pools_, first);
  }
  const KeySelection chosen = context.scratch_selection(rows, top_pools_);
  context.ops.index.select(context.stream, {.scores = scores,
                                            .candidates = candidates,
                                            .forced = forced,
                                            .chosen = chosen.positions,
                                            .counts = chosen.counts});
  const KeySelection part = selection.slice_rows(first_row, rows);
  context.ops.index_pool.pool_tokens(context.stream, {.pools = chosen.positions,
                                                      .counts = chosen.counts,
                                                      .pool = spec_.pool,
                                                      .tail = spec_.pool_tail,
                                                      .segments = std::span(&piece.rows, 1),
                                                      .positions = part.positions,
                                                      .token_counts = part.counts});
}

}  // namespace motley
