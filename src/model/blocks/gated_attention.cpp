#include "model/blocks/gated_attention.h"

#include <array>
#include <cmath>
#include <vector>

namespace motley {
namespace {

// The gate half of each head in [rows, heads, 2 * head_dim]: the op reads head_dim elements of
// each stride, starting at the offset data pointer.
ConstTensorView gate_half(const TensorView& q_and_gate, int heads, int head_dim) {
  TensorView gate = q_and_gate;
  gate.shape = {q_and_gate.rows(), heads, int64_t{2} * head_dim};
  gate.data += head_dim * dtype_bytes(gate.dtype);
  return gate;
}

TensorView as_heads(const TensorView& flat, int heads) {
  TensorView view = flat;
  view.shape = {flat.rows(), heads, flat.cols() / heads};
  return view;
}

std::vector<RowSegment> row_segments(const Batch& batch) {
  std::vector<RowSegment> segments;
  for (const BatchSegment& segment : batch.segments) segments.push_back(segment.rows);
  return segments;
}

}  // namespace

GatedAttentionBlock::GatedAttentionBlock(const GatedAttentionSpec& spec,
                                         const LoadedWeights& weights, int layer, StateKind kind)
    : spec_(spec),
      layer_(layer),
      kind_(kind),
      q_proj_(weights.matrix(spec.q_proj)),
      k_proj_(weights.matrix(spec.k_proj)),
      v_proj_(weights.matrix(spec.v_proj)),
      o_proj_(weights.matrix(spec.o_proj)),
      q_norm_(weights.vector(spec.q_norm.weight)),
      k_norm_(weights.vector(spec.k_norm.weight)) {}

Status GatedAttentionBlock::run(StepContext& context, const Batch& batch, const ConstTensorView& x,
                                const TensorView& out) const {
  const Arena::Scope scope(context.stream.scratch());
  const int64_t rows = batch.rows();
  const int heads = spec_.heads;
  const int kv_heads = spec_.kv_heads;
  const int head_dim = spec_.head_dim;

  const TensorView q_and_gate = context.scratch({rows, int64_t{heads} * 2 * head_dim});
  const TensorView k = context.scratch({rows, int64_t{kv_heads} * head_dim});
  const TensorView v = context.scratch({rows, int64_t{kv_heads} * head_dim});
  const std::array targets = {LinearTarget{q_proj_, q_and_gate}, LinearTarget{k_proj_, k},
                              LinearTarget{v_proj_, v}};
  context.ops.linear.linear(context.stream, x, batch.counts, targets);

  const std::vector<RowSegment> segments = row_segments(batch);
  const RotaryParams rotary{.rotary_dim = spec_.rotary_dim, .theta = spec_.rope_theta};
  const auto norm_and_rotate = [&](const TensorView& input, const NormSpec& norm,
                                   const ConstTensorView& weight, int count) {
    const TensorView result = context.scratch({rows, count, head_dim});
    context.ops.attention.head_norm_rotary(context.stream, {.x = as_heads(input, count),
                                                            .weight = weight,
                                                            .epsilon = norm.epsilon,
                                                            .weight_offset = norm.weight_offset,
                                                            .rotary = rotary,
                                                            .segments = segments,
                                                            .y = result});
    return result;
  };
  const TensorView q = norm_and_rotate(q_and_gate, spec_.q_norm, q_norm_, heads);
  const TensorView k_rotated = norm_and_rotate(k, spec_.k_norm, k_norm_, kv_heads);

  std::vector<AttentionSegment> caches;
  for (const BatchSegment& segment : batch.segments) {
    const StateEntry* entry = segment.state->layout().find(layer_, kind_);
    MOTLEY_CHECK(entry != nullptr, "attention layer without a cache in the layout");
    const PageLayout layout{.tokens_per_page = StateLayout::kTokensPerPage,
                            .kv_heads = kv_heads,
                            .head_dim = head_dim,
                            .dtype = entry->dtype};
    const int64_t length = segment.rows.first_position.value + segment.rows.rows;
    caches.push_back({segment.rows, segment.state->cache(layer_, kind_, layout, length)});
  }
  context.ops.attention.cache_write(context.stream, k_rotated, as_heads(v, kv_heads), caches);

  const PartialAttention partial{
      .out = context.scratch({rows, heads, head_dim}),
      .lse = {context.scratch({rows, heads})},
  };
  context.ops.attention.attend(context.stream,
                               {.q = q,
                                .kv_heads = kv_heads,
                                .scale = 1.0f / std::sqrt(static_cast<float>(head_dim)),
                                .segments = caches,
                                .result = partial});
  const AttentionOutput attention = AttentionMerger::merge_partials(
      context.stream, context.ops.attention, std::span(&partial, 1), context.topology);
  context.ops.norm.sigmoid_multiply(context.stream, gate_half(q_and_gate, heads, head_dim),
                                    attention.view());
  return project_output(context, batch.counts, attention, out);
}

Status GatedAttentionBlock::project_output(StepContext& context, RowCounts counts,
                                           const AttentionOutput& attention,
                                           const TensorView& out) const {
  const TensorView& heads = attention.view();
  TensorView flat = heads;
  flat.shape = {heads.rows(), heads.cols()};
  const LinearTarget target{o_proj_, out};
  context.ops.linear.linear(context.stream, flat, counts, std::span(&target, 1));
  return all_reduce(context, out);
}

}  // namespace motley
