#include "spec/families/glm_config.h"

#include <fmt/format.h>

#include <algorithm>

#include "spec/generation_config.h"

namespace motley {
namespace {

// Far above any real model, low enough that no product of a few of them overflows.
constexpr int64_t kMaxWidth = 1 << 18;
constexpr int64_t kMaxHeads = 1 << 10;
constexpr int64_t kMaxHeadDim = 1 << 12;
constexpr int64_t kMaxLayers = 1 << 10;
constexpr int64_t kMaxVocabulary = 1 << 24;
constexpr int64_t kMaxExperts = 1 << 12;
// A position in a choice of keys is a 32-bit number.
constexpr int64_t kMaxContext = int64_t{1} << 31;

Status read_int(const ConfigObject& object, std::string_view key, int64_t max, int* out) {
  MOTLEY_ASSIGN_OR_RETURN(const int64_t value, object.integer(key, 1, max));
  *out = static_cast<int>(value);
  return Status::ok();
}

// A field that has one supported value where it is there at all.
Status only_text(const ConfigObject& text, std::string_view key, std::string_view only) {
  MOTLEY_ASSIGN_OR_RETURN(const std::string value, text.text_or(key, only));
  if (value == only) return Status::ok();
  return text.unsupported_value(
      key, fmt::format("{} is not supported; {} is", json_excerpt(value), only));
}

Status refuse_unsupported(const ConfigObject& text) {
  MOTLEY_RETURN_IF_ERROR(only_text(text, "hidden_act", "silu"));
  MOTLEY_RETURN_IF_ERROR(only_text(text, "scoring_func", "sigmoid"));
  MOTLEY_RETURN_IF_ERROR(only_text(text, "topk_method", "noaux_tc"));
  MOTLEY_ASSIGN_OR_RETURN(const bool bias, text.boolean_or("mlp_bias", false));
  if (bias) return text.unsupported_value("mlp_bias", "true is not supported");
  MOTLEY_ASSIGN_OR_RETURN(const int64_t every, text.integer_or("moe_layer_freq", 1, 1, kMaxLayers));
  if (every != 1) return text.unsupported_value("moe_layer_freq", "more than 1 is not supported");
  return Status::ok();
}

Status read_rotation(const ConfigObject& text, GlmConfig* config) {
  MOTLEY_RETURN_IF_ERROR(read_int(text, "qk_rope_head_dim", kMaxHeadDim, &config->rope_dim));
  if (config->rope_dim % 2 != 0) return text.error("qk_rope_head_dim", "must be even");
  ConfigObject rope = text;
  for (const std::string_view key : {"rope_parameters", "rope_scaling"}) {
    if (!text.has(key)) continue;
    MOTLEY_ASSIGN_OR_RETURN(const ConfigObject parameters, text.object(key));
    const std::string_view type = parameters.has("rope_type") ? "rope_type" : "type";
    MOTLEY_RETURN_IF_ERROR(only_text(parameters, type, "default"));
    if (key == "rope_parameters") rope = parameters;
  }
  const ConfigObject& theta_place = rope.has("rope_theta") ? rope : text;
  MOTLEY_ASSIGN_OR_RETURN(config->rope_theta, theta_place.number("rope_theta", 1.0, 1e15));
  MOTLEY_ASSIGN_OR_RETURN(config->index_interleaved,
                          text.boolean_or("indexer_rope_interleave", true));
  return Status::ok();
}

Status read_attention(const ConfigObject& text, GlmConfig* config) {
  MOTLEY_RETURN_IF_ERROR(read_int(text, "num_attention_heads", kMaxHeads, &config->heads));
  MOTLEY_RETURN_IF_ERROR(read_int(text, "q_lora_rank", kMaxWidth, &config->q_rank));
  MOTLEY_RETURN_IF_ERROR(read_int(text, "kv_lora_rank", kMaxWidth, &config->kv_rank));
  MOTLEY_RETURN_IF_ERROR(read_int(text, "qk_nope_head_dim", kMaxHeadDim, &config->nope_dim));
  MOTLEY_RETURN_IF_ERROR(read_int(text, "v_head_dim", kMaxHeadDim, &config->value_dim));
  MOTLEY_ASSIGN_OR_RETURN(config->attention_bias, text.boolean_or("attention_bias", false));
  MOTLEY_RETURN_IF_ERROR(read_int(text, "index_n_heads", kMaxHeads, &config->index_heads));
  MOTLEY_RETURN_IF_ERROR(read_int(text, "index_head_dim", kMaxHeadDim, &config->index_head_dim));
  return read_int(text, "index_topk", kMaxWidth, &config->index_top_k);
}

Status read_dense_layers(const ConfigObject& text, GlmConfig* config) {
  MOTLEY_ASSIGN_OR_RETURN(const int64_t layers, text.integer("num_hidden_layers", 1, kMaxLayers));
  MOTLEY_ASSIGN_OR_RETURN(const std::vector<std::string> kinds, text.texts("mlp_layer_types"));
  if (kinds.empty()) {
    MOTLEY_ASSIGN_OR_RETURN(const int64_t dense,
                            text.integer("first_k_dense_replace", 0, kMaxLayers));
    for (int64_t i = 0; i < layers; ++i) config->is_dense.push_back(i < dense);
  } else if (std::ssize(kinds) != layers) {
    return text.error("mlp_layer_types",
                      fmt::format("has {} entries for {} layers", kinds.size(), layers));
  }
  for (const std::string& kind : kinds) {
    if (kind != "dense" && kind != "sparse") {
      return text.unsupported_value("mlp_layer_types",
                                    fmt::format("unknown layer kind {}", json_excerpt(kind)));
    }
    config->is_dense.push_back(kind == "dense");
  }
  if (std::find(config->is_dense.begin(), config->is_dense.end(), true) == config->is_dense.end()) {
    return Status::ok();
  }
  MOTLEY_ASSIGN_OR_RETURN(config->dense_size, text.integer("intermediate_size", 1, kMaxWidth));
  return Status::ok();
}

Status read_groups(const ConfigObject& text, GlmConfig* config) {
  MOTLEY_ASSIGN_OR_RETURN(const int64_t groups, text.integer_or("n_group", 1, 1, kMaxExperts));
  MOTLEY_ASSIGN_OR_RETURN(const int64_t kept, text.integer_or("topk_group", 1, 1, kMaxExperts));
  config->groups = static_cast<int>(groups);
  config->kept_groups = static_cast<int>(kept);
  if (config->experts % groups != 0) {
    return text.error("n_group",
                      fmt::format("{} does not divide the {} experts", groups, config->experts));
  }
  if (kept > groups) {
    return text.error("topk_group", fmt::format("{} of {} groups", kept, groups));
  }
  if (config->experts / groups * kept < config->experts_per_token) {
    return text.error("topk_group", fmt::format("{} groups hold fewer than {} experts", kept,
                                                config->experts_per_token));
  }
  return Status::ok();
}

Status read_experts(const ConfigObject& text, GlmConfig* config) {
  const std::string_view count = text.has("n_routed_experts") ? "n_routed_experts" : "num_experts";
  MOTLEY_RETURN_IF_ERROR(read_int(text, count, kMaxExperts, &config->experts));
  MOTLEY_RETURN_IF_ERROR(
      read_int(text, "num_experts_per_tok", config->experts, &config->experts_per_token));
  MOTLEY_RETURN_IF_ERROR(read_int(text, "moe_intermediate_size", kMaxWidth, &config->expert_size));
  MOTLEY_RETURN_IF_ERROR(read_int(text, "n_shared_experts", 64, &config->shared_experts));
  MOTLEY_ASSIGN_OR_RETURN(config->normalise, text.boolean_or("norm_topk_prob", true));
  MOTLEY_ASSIGN_OR_RETURN(const double scale,
                          text.number_or("routed_scaling_factor", 1.0, 1e-6, 1e6));
  config->routed_scale = static_cast<float>(scale);
  return read_groups(text, config);
}

}  // namespace

Result<GlmConfig> read_glm_config(const ConfigObject& root, const ConfigObject& text,
                                  bool with_rotation) {
  GlmConfig config;
  MOTLEY_RETURN_IF_ERROR(refuse_unsupported(text));
  MOTLEY_ASSIGN_OR_RETURN(config.hidden_size, text.integer("hidden_size", 1, kMaxWidth));
  MOTLEY_ASSIGN_OR_RETURN(config.vocab_size, text.integer("vocab_size", 1, kMaxVocabulary));
  MOTLEY_ASSIGN_OR_RETURN(config.context_length,
                          text.integer("max_position_embeddings", 1, kMaxContext));
  MOTLEY_ASSIGN_OR_RETURN(const double epsilon, text.number_or("rms_norm_eps", 1e-5, 1e-12, 1e-1));
  config.norm_epsilon = static_cast<float>(epsilon);
  MOTLEY_RETURN_IF_ERROR(read_dense_layers(text, &config));
  MOTLEY_RETURN_IF_ERROR(read_attention(text, &config));
  if (with_rotation) MOTLEY_RETURN_IF_ERROR(read_rotation(text, &config));
  MOTLEY_RETURN_IF_ERROR(read_experts(text, &config));
  constexpr std::string_view kDrafts = "num_nextn_predict_layers";
  MOTLEY_ASSIGN_OR_RETURN(const int64_t drafts, text.integer_or(kDrafts, 0, 0, kMaxLayers));
  if (drafts > 1) return text.unsupported_value(kDrafts, "more than one is not supported");
  config.draft_layers = static_cast<int>(drafts);
  MOTLEY_ASSIGN_OR_RETURN(const bool outer_tied, root.boolean_or("tie_word_embeddings", false));
  MOTLEY_ASSIGN_OR_RETURN(config.tied_head, text.boolean_or("tie_word_embeddings", outer_tied));
  MOTLEY_ASSIGN_OR_RETURN(config.eos_tokens, read_eos_tokens(text));
  MOTLEY_ASSIGN_OR_RETURN(const std::vector<int32_t> outer_eos, read_eos_tokens(root));
  add_eos_tokens(outer_eos, &config.eos_tokens);
  return config;
}

Status read_indexer_kinds(const ConfigObject& text, GlmConfig* config) {
  const int layers = config->layers();
  std::string_view key = "indexer_types";
  MOTLEY_ASSIGN_OR_RETURN(const std::vector<std::string> kinds, text.texts(key));
  for (const std::string& kind : kinds) {
    if (kind != "full" && kind != "shared") {
      return text.unsupported_value(key,
                                    fmt::format("unknown indexer kind {}", json_excerpt(kind)));
    }
    config->has_own_indexer.push_back(kind == "full");
  }
  if (kinds.empty() && text.has("index_topk_pattern")) {
    key = "index_topk_pattern";
    MOTLEY_ASSIGN_OR_RETURN(const std::string pattern, text.text(key));
    for (const char kind : pattern) {
      if (kind != 'F' && kind != 'S') {
        return text.unsupported_value(key, "holds a letter that is neither F nor S");
      }
      config->has_own_indexer.push_back(kind == 'F');
    }
  } else if (kinds.empty()) {
    key = "index_topk_freq";
    MOTLEY_ASSIGN_OR_RETURN(const int64_t every, text.integer_or(key, 1, 1, kMaxLayers));
    MOTLEY_ASSIGN_OR_RETURN(const int64_t offset,
                            text.integer_or("index_skip_topk_offset", 2, 0, kMaxLayers));
    for (int64_t i = 0; i < layers; ++i) {
      config->has_own_indexer.push_back(std::max<int64_t>(i - offset + 1, 0) % every == 0);
    }
  }
  if (std::ssize(config->has_own_indexer) != layers) {
    return text.error(
        key, fmt::format("has {} entries for {} layers", config->has_own_indexer.size(), layers));
  }
  if (!config->has_own_indexer.front()) {
    return text.error(key, "layer 0 shares the indexer of a layer before it, and there is none");
  }
  return Status::ok();
}

}  // namespace motley
