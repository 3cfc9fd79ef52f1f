#include "spec/families/glm_builder.h"

#include <fmt/format.h>

#include <cmath>

namespace motley {

GlmPlace GlmBuilder::place(int layer) const {
  const bool is_draft = layer == config_.layers();
  return {.name = is_draft ? "drafts.0.layer." : fmt::format("layers.{}.", layer),
          .module = fmt::format("{}layers.{}.", prefix_, layer),
          .is_draft = is_draft};
}

void GlmBuilder::add_ends() {
  spec_->hidden_size = config_.hidden_size;
  spec_->vocab_size = config_.vocab_size;
  spec_->context_length = config_.context_length;
  spec_->eos_tokens = config_.eos_tokens;
  spec_->embedding = list_.matrix("embedding", prefix_ + "embed_tokens", config_.vocab_size,
                                  config_.hidden_size, "embedding");
  spec_->final_norm = norm("final_norm", prefix_ + "norm", config_.hidden_size, "norm");
  if (config_.tied_head) {
    spec_->head = spec_->embedding;
    spec_->skipped.push_back({"lm_head.", std::string(kTiedReason)});
  } else {
    spec_->head = list_.matrix("head", "lm_head", config_.vocab_size, config_.hidden_size, "head");
  }
}

NormSpec GlmBuilder::norm(std::string name, std::string module, int64_t size, std::string part) {
  return {.weight = list_.vector(std::move(name), std::move(module), size, std::move(part)),
          .epsilon = config_.norm_epsilon};
}

TensorHandle GlmBuilder::bias(const GlmPlace& place, std::string_view leaf, int64_t size) {
  if (!config_.attention_bias) return {};
  return list_.vector(fmt::format("{}attention.{}.bias", place.name, leaf),
                      fmt::format("{}self_attn.{}.bias", place.module, leaf), size,
                      place.part("attention"), /*bare=*/true);
}

Result<LatentAttentionSpec> GlmBuilder::latent_attention(const GlmPlace& place, KeySource keys) {
  const int64_t hidden = config_.hidden_size;
  const auto matrix = [&](std::string_view leaf, int64_t rows, int64_t cols) {
    return list_.matrix(fmt::format("{}attention.{}", place.name, leaf),
                        fmt::format("{}self_attn.{}", place.module, leaf), rows, cols,
                        place.part("attention"));
  };
  const auto latent_norm = [&](std::string_view leaf, int64_t size) {
    NormSpec result =
        norm(fmt::format("{}attention.{}", place.name, leaf),
             fmt::format("{}self_attn.{}", place.module, leaf), size, place.part("norm"));
    result.epsilon = latent_epsilon_;
    return result;
  };
  const int query_dim = config_.nope_dim + config_.rope_dim;
  LatentAttentionSpec latent{.heads = config_.heads,
                             .q_rank = config_.q_rank,
                             .kv_rank = config_.kv_rank,
                             .nope_dim = config_.nope_dim,
                             .rope_dim = config_.rope_dim,
                             .value_dim = config_.value_dim,
                             .rope_theta = config_.rope_theta,
                             .interleaved = true,
                             .scale = 1.0f / std::sqrt(static_cast<float>(query_dim)),
                             .keys = keys};
  latent.q_a_proj = matrix("q_a_proj", config_.q_rank, hidden);
  latent.q_a_bias = bias(place, "q_a_proj", config_.q_rank);
  latent.q_a_norm = latent_norm("q_a_layernorm", config_.q_rank);
  latent.q_b_proj = matrix("q_b_proj", int64_t{config_.heads} * query_dim, config_.q_rank);
  latent.kv_a_proj = matrix("kv_a_proj_with_mqa", latent.cache_width(), hidden);
  latent.kv_a_bias = bias(place, "kv_a_proj_with_mqa", latent.cache_width());
  latent.kv_a_norm = latent_norm("kv_a_layernorm", config_.kv_rank);
  latent.kv_b_proj =
      matrix("kv_b_proj", int64_t{config_.heads} * (config_.nope_dim + config_.value_dim),
             config_.kv_rank);
  latent.o_proj = matrix("o_proj", hidden, int64_t{config_.heads} * config_.value_dim);
  latent.o_bias = bias(place, "o_proj", hidden);
  if (keys == KeySource::kOwn) {
    latent.indexer = indexer(place);
    return latent;
  }
  // Such a layer computes with the choice of another, right up to index_topk tokens and wrong after
  // them if it was meant to have an indexer.
  for (const char* leaf : {"wk.weight", "wk.weight_packed", "wq_b.weight", "wq_b.weight_packed",
                           "weights_proj.weight", "k_norm.weight"}) {
    const std::string name = fmt::format("{}self_attn.indexer.{}", place.module, leaf);
    if (!has(name)) continue;
    return corrupt(fmt::format(
        "tensor '{}' belongs to an indexer, but config.json says that this layer shares one",
        name));
  }
  return latent;
}

IndexerSpec GlmBuilder::indexer(const GlmPlace& place) {
  const std::string name = place.name + "indexer.";
  const std::string module = place.module + "self_attn.indexer.";
  const std::string part = place.part("indexer");
  const int heads = config_.index_heads;
  const int dim = config_.index_head_dim;
  IndexerSpec indexer{
      .heads = heads,
      .head_dim = dim,
      .top_k = config_.index_top_k,
      .rotary_dim = config_.rope_dim,
      .rope_theta = config_.rope_theta,
      .interleaved = config_.index_interleaved,
      .weight_scale = 1.0f / std::sqrt(static_cast<float>(heads) * static_cast<float>(dim))};
  indexer.q_proj =
      list_.matrix(name + "q_proj", module + "wq_b", int64_t{heads} * dim, config_.q_rank, part);
  indexer.k_proj = list_.matrix(name + "k_proj", module + "wk", dim, config_.hidden_size, part);
  indexer.weights_proj = list_.matrix(name + "weights_proj", module + "weights_proj", heads,
                                      config_.hidden_size, part);
  indexer.k_norm_weight = list_.vector(name + "k_norm", module + "k_norm", dim, place.part("norm"));
  indexer.k_norm_bias = list_.vector(name + "k_norm.bias", module + "k_norm.bias", dim,
                                     place.part("norm"), /*bare=*/true);
  if (config_.index_pool == 0) return indexer;
  indexer.pool = config_.index_pool;
  indexer.pool_tail = config_.index_tail;
  indexer.pool_gate = list_.matrix(name + "pool_gate", module + "index_kpool_compress_gate", dim,
                                   config_.hidden_size, part, /*bare=*/true);
  indexer.pool_offset = list_.table(name + "pool_offset", module + "index_kpool_compress_ape",
                                    indexer.pool, dim, part, /*bare=*/true);
  return indexer;
}

DenseMlpSpec GlmBuilder::dense_mlp(const GlmPlace& place, float swiglu_limit) {
  const int64_t size = config_.dense_size;
  const auto matrix = [&](std::string_view leaf, int64_t rows, int64_t cols) {
    return list_.matrix(fmt::format("{}mlp.{}", place.name, leaf),
                        fmt::format("{}mlp.{}_proj", place.module, leaf), rows, cols,
                        place.part("dense mlp"));
  };
  return {.intermediate_size = static_cast<int>(size),
          .swiglu_limit = swiglu_limit,
          .gate = matrix("gate", size, config_.hidden_size),
          .up = matrix("up", size, config_.hidden_size),
          .down = matrix("down", config_.hidden_size, size)};
}

MoeSpec GlmBuilder::moe(const GlmPlace& place, float swiglu_limit) {
  const int64_t hidden = config_.hidden_size;
  const int64_t size = config_.expert_size;
  const std::string name = place.name + "moe.";
  const std::string module = place.module + "mlp.";
  MoeSpec moe{.router_kind = RouterKind::kSigmoid,
              .experts = config_.experts,
              .experts_per_token = config_.experts_per_token,
              .intermediate_size = config_.expert_size,
              .shared_intermediate_size = config_.shared_expert_size(),
              .normalise = config_.normalise,
              .groups = config_.groups,
              .kept_groups = config_.kept_groups,
              .routed_scale = config_.routed_scale,
              .swiglu_limit = swiglu_limit};
  moe.router =
      list_.matrix(name + "router", module + "gate", config_.experts, hidden, place.part("router"));
  moe.correction_bias =
      list_.vector(name + "correction_bias", module + "gate.e_score_correction_bias",
                   config_.experts, place.part("router"), /*bare=*/true);
  const auto experts = [&](std::string_view leaf, int64_t rows, int64_t cols) {
    return list_.experts(fmt::format("{}experts.{}", name, leaf),
                         fmt::format("{}experts.{{}}.{}_proj", module, leaf), config_.experts, rows,
                         cols, place.part("experts"));
  };
  moe.gate = experts("gate", size, hidden);
  moe.up = experts("up", size, hidden);
  moe.down = experts("down", hidden, size);
  const int64_t shared = config_.shared_expert_size();
  const auto shared_matrix = [&](std::string_view leaf, int64_t rows, int64_t cols) {
    return list_.matrix(fmt::format("{}shared.{}", name, leaf),
                        fmt::format("{}shared_experts.{}_proj", module, leaf), rows, cols,
                        place.part("shared expert"));
  };
  moe.shared_gate = shared_matrix("gate", shared, hidden);
  moe.shared_up = shared_matrix("up", shared, hidden);
  moe.shared_down = shared_matrix("down", hidden, shared);
  return moe;
}

LayerSpec GlmBuilder::layer(const GlmPlace& place, MixerSpec mixer, bool dense,
                            float swiglu_limit) {
  LayerSpec layer;
  layer.mixer_norm = norm(place.name + "mixer_norm", place.module + "input_layernorm",
                          config_.hidden_size, place.part("norm"));
  layer.mixer = std::move(mixer);
  layer.feed_forward_norm =
      norm(place.name + "feed_forward_norm", place.module + "post_attention_layernorm",
           config_.hidden_size, place.part("norm"));
  if (dense) {
    layer.feed_forward = dense_mlp(place, swiglu_limit);
  } else {
    layer.feed_forward = moe(place, swiglu_limit);
  }
  return layer;
}

Status GlmBuilder::add_draft(float swiglu_limit) {
  const GlmPlace at = place(config_.layers());
  if (config_.draft_layers == 0) {
    spec_->skipped.push_back({at.module, "config.json says that there are no draft layers"});
    return Status::ok();
  }
  const bool is_planned = catalog_.planned_layout().has_value();
  if (is_planned && !catalog_.planned_drafts()) return Status::ok();
  const std::string first = at.module + "eh_proj.weight";
  if (!is_planned && !has(first) && !has(first + "_packed")) {
    return not_found(fmt::format(
        "tensor '{}' is missing: config.json says num_nextn_predict_layers 1; set it to 0 to run "
        "without drafts",
        first));
  }
  const int64_t hidden = config_.hidden_size;
  DraftSpec draft;
  draft.projection =
      list_.matrix("drafts.0.projection", at.module + "eh_proj", hidden, 2 * hidden, "draft");
  draft.embedding_norm = norm("drafts.0.embedding_norm", at.module + "enorm", hidden, "draft");
  draft.hidden_norm = norm("drafts.0.hidden_norm", at.module + "hnorm", hidden, "draft");
  MOTLEY_ASSIGN_OR_RETURN(LatentAttentionSpec latent, latent_attention(at, KeySource::kOwn));
  draft.layer = layer(at, std::move(latent), /*dense=*/false, swiglu_limit);
  draft.final_norm = norm("drafts.0.final_norm", at.module + "shared_head.norm", hidden, "draft");
  draft.zero_first_embedding = true;
  // Some files repeat the trunk's.
  const auto own = [&](const std::string& name, const std::string& module) {
    if (!has(module + ".weight") && !has(module + ".weight_packed")) return TensorHandle{};
    return list_.matrix(name, module, config_.vocab_size, hidden, "draft");
  };
  draft.embedding = own("drafts.0.embedding", at.module + "embed_tokens");
  draft.head = own("drafts.0.head", at.module + "shared_head.head");
  spec_->drafts.push_back(std::move(draft));
  return Status::ok();
}

}  // namespace motley
