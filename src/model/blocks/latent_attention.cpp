#include "model/blocks/latent_attention.h"

#include <array>

namespace motley {
namespace {

ConstTensorView optional_vector(const LoadedWeights& weights, TensorHandle handle) {
  return handle.is_set() ? weights.vector(handle) : ConstTensorView{};
}

void add_bias(StepContext& context, const ConstTensorView& bias, const TensorView& y) {
  if (!bias.is_empty()) context.ops.norm.add_bias(context.stream, bias, y);
}

// The same memory as [rows, heads, stride], from element `skip` of each stride on.
TensorView as_heads(TensorView view, int64_t heads, int64_t skip) {
  view.shape = {view.rows(), heads, view.cols() / heads};
  view.data += skip * dtype_bytes(view.dtype);
  return view;
}

}  // namespace

LatentAttentionBlock::LatentAttentionBlock(const LatentAttentionSpec& spec,
                                           const LoadedWeights& weights, int layer)
    : spec_(spec),
      layer_(layer),
      q_a_proj_(weights.matrix(spec.q_a_proj)),
      q_b_proj_(weights.matrix(spec.q_b_proj)),
      kv_a_proj_(weights.matrix(spec.kv_a_proj)),
      o_proj_(weights.matrix(spec.o_proj)),
      q_a_norm_(weights.vector(spec.q_a_norm.weight)),
      kv_a_norm_(weights.vector(spec.kv_a_norm.weight)),
      q_a_bias_(optional_vector(weights, spec.q_a_bias)),
      kv_a_bias_(optional_vector(weights, spec.kv_a_bias)),
      o_bias_(optional_vector(weights, spec.o_bias)) {
  const WeightMatrix& both = weights.matrix(spec.kv_b_proj);
  const int64_t per_head = spec.nope_dim + spec.value_dim;
  for (int64_t head = 0; head < spec.heads; ++head) {
    key_up_.push_back(both.slice_rows(head * per_head, spec.nope_dim));
    value_up_.push_back(both.slice_rows(head * per_head + spec.nope_dim, spec.value_dim));
  }
  if (spec.keys != KeySource::kOwn) return;
  if (spec.indexer.is_pooled()) {
    indexer_.emplace<PooledIndexer>(spec.indexer, weights, layer);
  } else {
    indexer_.emplace<Indexer>(spec.indexer, weights, layer);
  }
}

Status LatentAttentionBlock::run(StepContext& context, const Batch& batch, const ConstTensorView& x,
                                 const TensorView& out, StepObserver& observer) const {
  const Arena::Scope scope(context.stream.scratch());
  const int64_t rows = batch.rows();
  const Projected projected = project(context, batch, x);
  const std::vector<RowCacheSegment> caches =
      row_caches(batch, layer_, StateKind::kLatentRows, spec_.cache_width());
  context.ops.latent.row_write(context.stream, projected.cache, caches);
  const KeySelection selection = select(context, batch, x, projected.q_latent, observer);

  const PartialAttention partial{
      .out = context.scratch({rows, spec_.heads, spec_.kv_rank}),
      .lse = {context.scratch({rows, spec_.heads})},
  };
  context.ops.latent.attend(context.stream, {.q = projected.q,
                                             .rank = spec_.kv_rank,
                                             .scale = spec_.scale,
                                             .segments = caches,
                                             .selection = selection,
                                             .result = partial});
  const AttentionOutput attention = AttentionMerger::merge_partials(
      context.stream, context.ops.attention, std::span(&partial, 1), context.topology);
  return project_output(context, batch.counts, attention, out);
}

LatentAttentionBlock::Projected LatentAttentionBlock::project(StepContext& context,
                                                              const Batch& batch,
                                                              const ConstTensorView& x) const {
  const int64_t rows = batch.rows();
  const int64_t heads = spec_.heads;
  const auto linear = [&](const ConstTensorView& input, std::span<const LinearTarget> targets) {
    context.ops.linear.linear(context.stream, input, batch.counts, targets);
  };
  const auto norm = [&](const TensorView& view, const ConstTensorView& weight,
                        const NormSpec& spec) {
    context.ops.norm.rms_norm(context.stream, view, weight,
                              {.epsilon = spec.epsilon, .weight_offset = spec.weight_offset}, view);
  };
  const TensorView q_latent = context.scratch({rows, spec_.q_rank});
  const TensorView cache = context.scratch({rows, spec_.cache_width()});
  linear(x, std::array{LinearTarget{q_a_proj_, q_latent}, LinearTarget{kv_a_proj_, cache}});
  add_bias(context, q_a_bias_, q_latent);
  add_bias(context, kv_a_bias_, cache);
  norm(q_latent, q_a_norm_, spec_.q_a_norm);
  norm(cache.slice_cols(0, spec_.kv_rank), kv_a_norm_, spec_.kv_a_norm);

  const TensorView q = context.scratch({rows, heads * (spec_.nope_dim + spec_.rope_dim)});
  linear(q_latent, std::array{LinearTarget{q_b_proj_, q}});
  const TensorView absorbed = context.scratch({rows, heads, spec_.cache_width()});
  context.ops.latent.head_linear(context.stream, as_heads(q, heads, 0), key_up_,
                                 /*transposed=*/true, absorbed);
  if (spec_.rope_dim > 0) {
    rotate(context, batch, q, spec_.nope_dim, absorbed, spec_.kv_rank);
    rotate(context, batch, cache, spec_.kv_rank, cache, spec_.kv_rank);
  }
  return {q_latent, absorbed, cache};
}

// Rotates what lies at from_dim of each head of `from`, into to_dim of each head of `to`. One that
// has the columns of a cache row has one head.
void LatentAttentionBlock::rotate(StepContext& context, const Batch& batch, TensorView from,
                                  int64_t from_dim, TensorView to, int64_t to_dim) const {
  std::vector<RowSegment> segments;
  for (const BatchSegment& segment : batch.segments) segments.push_back(segment.rows);
  const int64_t heads = to.shape.rank() == 3 ? spec_.heads : 1;
  context.ops.latent.rotate(context.stream,
                            {.x = as_heads(from, heads, from_dim),
                             .rotary = {.rotary_dim = spec_.rope_dim, .theta = spec_.rope_theta},
                             .interleaved = spec_.interleaved,
                             .segments = segments,
                             .y = as_heads(to, heads, to_dim)});
}

KeySelection LatentAttentionBlock::select(StepContext& context, const Batch& batch,
                                          const ConstTensorView& x, const ConstTensorView& q_latent,
                                          StepObserver& observer) const {
  if (spec_.keys == KeySource::kEvery) return {};
  if (spec_.keys == KeySource::kShared) {
    MOTLEY_CHECK(context.selection.counts.rows() == batch.rows(),
                 "a layer that shares its keys needs the choice for the same rows");
    return context.selection;
  }
  const KeySelection selection =
      context.selection.is_empty() ? context.scratch_selection(batch.rows(), spec_.indexer.width())
                                   : context.selection;
  if (const auto* pooled = std::get_if<PooledIndexer>(&indexer_)) {
    pooled->select(context, batch, x, q_latent, observer, selection);
  } else {
    std::get<Indexer>(indexer_).select(context, batch, x, q_latent, observer, selection);
  }
  return selection;
}

Status LatentAttentionBlock::project_output(StepContext& context, RowCounts counts,
                                            const AttentionOutput& attention,
                                            const TensorView& out) const {
  const int64_t rows = out.rows();
  const TensorView values = context.scratch({rows, spec_.heads, spec_.value_dim});
  context.ops.latent.head_linear(context.stream, attention.view(), value_up_,
                                 /*transposed=*/false, values);
  TensorView flat = values;
  flat.shape = {rows, values.cols()};
  const LinearTarget target{o_proj_, out};
  context.ops.linear.linear(context.stream, flat, counts, std::span(&target, 1));
  MOTLEY_RETURN_IF_ERROR(all_reduce(context, out));
  add_bias(context, o_bias_, out);
  return Status::ok();
}

}  // namespace motley
