#include "engine/token_cost.h"

namespace motley {
namespace {

// Called with a tensor and how many of its matrices one token meets (experts_per_token for
// routed experts, else 1).
using Visitor = std::function<void(TensorHandle tensor, int matrices)>;

void visit_mixer(const MixerSpec& mixer, const Visitor& visit) {
  if (const auto* delta = std::get_if<GatedDeltaSpec>(&mixer)) {
    for (const TensorHandle tensor :
         {delta->in_proj_qkv, delta->in_proj_z, delta->in_proj_b, delta->in_proj_a,
          delta->convolution, delta->a_log, delta->dt_bias, delta->norm.weight, delta->out_proj}) {
      visit(tensor, 1);
    }
    return;
  }
  if (const auto* channel = std::get_if<ChannelDeltaSpec>(&mixer)) {
    for (const TensorHandle tensor :
         {channel->q_proj, channel->k_proj, channel->v_proj, channel->convolution,
          channel->decay_in_proj, channel->decay_proj, channel->a_log, channel->dt_bias,
          channel->beta_proj, channel->gate_in_proj, channel->gate_proj, channel->norm.weight,
          channel->out_proj}) {
      visit(tensor, 1);
    }
    return;
  }
  if (const auto* latent = std::get_if<LatentAttentionSpec>(&mixer)) {
    const IndexerSpec& indexer = latent->indexer;
    for (const TensorHandle tensor :
         {latent->q_a_proj, latent->q_a_bias, latent->q_a_norm.weight, latent->q_b_proj,
          latent->kv_a_proj, latent->kv_a_bias, latent->kv_a_norm.weight, latent->kv_b_proj,
          latent->o_proj, latent->o_bias, indexer.q_proj, indexer.k_proj, indexer.weights_proj,
          indexer.k_norm_weight, indexer.k_norm_bias, indexer.pool_gate, indexer.pool_offset}) {
      visit(tensor, 1);
    }
    return;
  }
  const auto& attention = std::get<GatedAttentionSpec>(mixer);
  for (const TensorHandle tensor :
       {attention.q_proj, attention.k_proj, attention.v_proj, attention.o_proj,
        attention.q_norm.weight, attention.k_norm.weight}) {
    visit(tensor, 1);
  }
}

void visit_feed_forward(const FeedForwardSpec& feed_forward, const Visitor& visit) {
  if (const auto* moe = std::get_if<MoeSpec>(&feed_forward)) {
    for (const TensorHandle tensor : {moe->gate, moe->up, moe->down}) {
      visit(tensor, moe->experts_per_token);
    }
    for (const TensorHandle tensor :
         {moe->router, moe->shared_gate, moe->shared_up, moe->shared_down, moe->shared_expert_gate,
          moe->correction_bias}) {
      visit(tensor, 1);
    }
    return;
  }
  const auto& dense = std::get<DenseMlpSpec>(feed_forward);
  for (const TensorHandle tensor : {dense.gate, dense.up, dense.down}) visit(tensor, 1);
}

int64_t active_elements(const TensorSpec& tensor, int matrices) {
  if (tensor.role != TensorRole::kExperts) return tensor.shape.elements();
  return tensor.shape.elements() / tensor.shape[0] * matrices;
}

int64_t multiply_adds(const TensorSpec& tensor, int matrices) {
  if (tensor.role == TensorRole::kVector) return 0;
  return active_elements(tensor, matrices);
}

int64_t bytes_read(const TensorSpec& tensor, TensorHandle handle, const LoadedWeights& weights,
                   int matrices) {
  switch (tensor.role) {
    case TensorRole::kMatrix:
      return weights.matrix(handle).bytes();
    case TensorRole::kExperts:
      return weights.expert(handle, 0).bytes() * matrices;
    case TensorRole::kVector:
    case TensorRole::kTable:
    case TensorRole::kConvolution:
      return tensor.shape.elements() * static_cast<int64_t>(sizeof(float));
  }
  return 0;
}

}  // namespace

void visit_layer_tensors(const LayerSpec& layer, const Visitor& visit) {
  const Visitor visit_set = [&](TensorHandle tensor, int matrices) {
    if (tensor.is_set()) visit(tensor, matrices);
  };
  visit_set(layer.mixer_norm.weight, 1);
  visit_mixer(layer.mixer, visit_set);
  visit_set(layer.feed_forward_norm.weight, 1);
  visit_feed_forward(layer.feed_forward, visit_set);
  for (const HyperConnectionSpec* hyper : {&layer.mixer_hyper, &layer.feed_forward_hyper}) {
    for (const TensorHandle tensor : {hyper->fn, hyper->base, hyper->scale}) visit_set(tensor, 1);
  }
}

ParameterCounts count_parameters(const ModelSpec& spec) {
  ParameterCounts counts;
  for (const TensorSpec& tensor : spec.tensors) counts.total += tensor.shape.elements();
  const auto add_active = [&](TensorHandle tensor, int matrices) {
    counts.active += active_elements(spec.tensor(tensor), matrices);
  };
  for (const LayerSpec& layer : spec.layers) visit_layer_tensors(layer, add_active);
  add_active(spec.final_norm.weight, 1);
  add_active(spec.head, 1);
  counts.active += spec.hidden_size;  // the embedding row
  const auto add_draft = [&](TensorHandle tensor, int) {
    counts.drafts += spec.tensor(tensor).shape.elements();
  };
  for (const DraftSpec& draft : spec.drafts) {
    visit_layer_tensors(draft.layer, add_draft);
    for (const TensorHandle tensor :
         {draft.projection, draft.embedding_norm.weight, draft.hidden_norm.weight,
          draft.final_norm.weight, draft.embedding, draft.head}) {
      if (tensor.is_set()) add_draft(tensor, 1);
    }
  }
  return counts;
}

TokenCost token_cost(const ModelSpec& spec, const LoadedWeights& weights,
                     const StateLayout& layout) {
  TokenCost cost;
  const auto add = [&](TensorHandle handle, int matrices) {
    const TensorSpec& tensor = spec.tensor(handle);
    cost.weight_bytes += bytes_read(tensor, handle, weights, matrices);
    cost.prefill_multiply_adds += multiply_adds(tensor, matrices);
  };
  for (const LayerSpec& layer : spec.layers) visit_layer_tensors(layer, add);
  add(spec.final_norm.weight, 1);
  cost.decode_multiply_adds = cost.prefill_multiply_adds + spec.tensor(spec.head).shape.elements();
  cost.weight_bytes += weights.matrix(spec.head).bytes();
  cost.weight_bytes += weights.matrix(spec.embedding).slice_rows(0, 1).bytes();
  cost.state_fixed_bytes = layout.fixed_bytes();
  cost.state_bytes_per_token = layout.bytes_per_token();
  return cost;
}

}  // namespace motley
