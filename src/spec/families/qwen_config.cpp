#include "spec/families/qwen_config.h"

#include <fmt/format.h>

#include <cmath>

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
constexpr int64_t kMaxContext = int64_t{1} << 32;

Status read_int(const ConfigObject& object, std::string_view key, int64_t max, int* out) {
  MOTLEY_ASSIGN_OR_RETURN(const int64_t value, object.integer(key, 1, max));
  *out = static_cast<int>(value);
  return Status::ok();
}

Status refuse_unsupported(const ConfigObject& text) {
  MOTLEY_ASSIGN_OR_RETURN(const bool bias, text.boolean_or("attention_bias", false));
  if (bias) return text.unsupported_value("attention_bias", "true is not supported");
  MOTLEY_ASSIGN_OR_RETURN(const bool gate, text.boolean_or("attn_output_gate", true));
  if (!gate) return text.unsupported_value("attn_output_gate", "false is not supported");
  MOTLEY_ASSIGN_OR_RETURN(const std::string activation, text.text_or("hidden_act", "silu"));
  if (activation != "silu") {
    return text.unsupported_value(
        "hidden_act", fmt::format("{} is not supported; silu is", json_excerpt(activation)));
  }
  return Status::ok();
}

Status read_layer_kinds(const ConfigObject& text, QwenConfig* config) {
  MOTLEY_ASSIGN_OR_RETURN(const int64_t layers, text.integer("num_hidden_layers", 1, kMaxLayers));
  MOTLEY_ASSIGN_OR_RETURN(const int64_t interval,
                          text.integer_or("full_attention_interval", 4, 1, kMaxLayers));
  MOTLEY_ASSIGN_OR_RETURN(const std::vector<std::string> kinds, text.texts("layer_types"));
  if (kinds.empty()) {
    for (int64_t i = 0; i < layers; ++i) {
      config->is_full_attention.push_back((i + 1) % interval == 0);
    }
    return Status::ok();
  }
  if (static_cast<int64_t>(kinds.size()) != layers) {
    return text.error("layer_types",
                      fmt::format("has {} entries for {} layers", kinds.size(), layers));
  }
  for (const std::string& kind : kinds) {
    if (kind != "full_attention" && kind != "linear_attention") {
      return text.unsupported_value("layer_types",
                                    fmt::format("unknown layer kind {}", json_excerpt(kind)));
    }
    config->is_full_attention.push_back(kind == "full_attention");
  }
  return Status::ok();
}

// rope_parameters, or the flat fields of older files.
Status read_rope(const ConfigObject& text, QwenConfig* config) {
  ConfigObject rope = text;
  for (const std::string_view key : {"rope_parameters", "rope_scaling"}) {
    if (!text.has(key)) continue;
    MOTLEY_ASSIGN_OR_RETURN(const ConfigObject parameters, text.object(key));
    const std::string_view type_key = parameters.has("rope_type") ? "rope_type" : "type";
    MOTLEY_ASSIGN_OR_RETURN(const std::string type, parameters.text_or(type_key, "default"));
    if (type != "default" && type != "mrope") {
      return parameters.unsupported_value(
          type_key, fmt::format("{} is not supported; default is", json_excerpt(type)));
    }
    if (key == "rope_parameters") rope = parameters;
  }
  const ConfigObject& theta_place = rope.has("rope_theta") ? rope : text;
  MOTLEY_ASSIGN_OR_RETURN(config->rope_theta, theta_place.number("rope_theta", 1.0, 1e15));
  const ConfigObject& factor_place = rope.has("partial_rotary_factor") ? rope : text;
  MOTLEY_ASSIGN_OR_RETURN(const double factor,
                          factor_place.number_or("partial_rotary_factor", 0.25, 0.0, 1.0));
  const double rotary = factor * config->head_dim;
  config->rotary_dim = static_cast<int>(std::lround(rotary));
  if (std::abs(rotary - config->rotary_dim) > 1e-6 || config->rotary_dim < 2 ||
      config->rotary_dim % 2 != 0) {
    return factor_place.error(
        "partial_rotary_factor",
        fmt::format("{} of head_dim {} is not a positive even number of dimensions", factor,
                    config->head_dim));
  }
  return Status::ok();
}

Status read_attention(const ConfigObject& text, QwenConfig* config) {
  MOTLEY_RETURN_IF_ERROR(read_int(text, "num_attention_heads", kMaxHeads, &config->heads));
  MOTLEY_RETURN_IF_ERROR(read_int(text, "num_key_value_heads", kMaxHeads, &config->kv_heads));
  MOTLEY_RETURN_IF_ERROR(read_int(text, "head_dim", kMaxHeadDim, &config->head_dim));
  if (config->heads % config->kv_heads != 0) {
    return text.error(
        "num_key_value_heads",
        fmt::format("{} does not divide num_attention_heads {}", config->kv_heads, config->heads));
  }
  return read_rope(text, config);
}

Status read_delta(const ConfigObject& text, QwenConfig* config) {
  MOTLEY_RETURN_IF_ERROR(read_int(text, "linear_num_key_heads", kMaxHeads, &config->key_heads));
  MOTLEY_RETURN_IF_ERROR(read_int(text, "linear_num_value_heads", kMaxHeads, &config->value_heads));
  MOTLEY_RETURN_IF_ERROR(read_int(text, "linear_key_head_dim", kMaxHeadDim, &config->key_head_dim));
  MOTLEY_RETURN_IF_ERROR(
      read_int(text, "linear_value_head_dim", kMaxHeadDim, &config->value_head_dim));
  MOTLEY_RETURN_IF_ERROR(read_int(text, "linear_conv_kernel_dim", 64, &config->conv_kernel));
  if (config->value_heads % config->key_heads != 0) {
    return text.error("linear_num_key_heads",
                      fmt::format("{} does not divide linear_num_value_heads {}", config->key_heads,
                                  config->value_heads));
  }
  // With a kernel of one, the two layouts of conv1d.weight look alike.
  if (config->conv_kernel < 2) {
    return text.unsupported_value("linear_conv_kernel_dim", "1 is not supported");
  }
  return Status::ok();
}

Status read_experts(const ConfigObject& text, QwenConfig* config) {
  MOTLEY_RETURN_IF_ERROR(read_int(text, "num_experts", kMaxExperts, &config->experts));
  MOTLEY_RETURN_IF_ERROR(
      read_int(text, "num_experts_per_tok", config->experts, &config->experts_per_token));
  MOTLEY_RETURN_IF_ERROR(read_int(text, "moe_intermediate_size", kMaxWidth, &config->expert_size));
  return read_int(text, "shared_expert_intermediate_size", kMaxWidth, &config->shared_expert_size);
}

Status read_drafts(const ConfigObject& text, QwenConfig* config) {
  constexpr std::string_view kLayers = "mtp_num_hidden_layers";
  constexpr std::string_view kDedicated = "mtp_use_dedicated_embeddings";
  MOTLEY_ASSIGN_OR_RETURN(const int64_t layers, text.integer_or(kLayers, 1, 0, kMaxLayers));
  if (layers > 1) return text.unsupported_value(kLayers, "more than one is not supported");
  MOTLEY_ASSIGN_OR_RETURN(const bool dedicated, text.boolean_or(kDedicated, false));
  if (dedicated) return text.unsupported_value(kDedicated, "true is not supported");
  config->draft_layers = static_cast<int>(layers);
  return Status::ok();
}

Status read_tied_head(const ConfigObject& root, const ConfigObject& text, QwenConfig* config) {
  constexpr std::string_view kTied = "tie_word_embeddings";
  MOTLEY_ASSIGN_OR_RETURN(const bool outer, root.boolean_or(kTied, false));
  MOTLEY_ASSIGN_OR_RETURN(config->tied_head, text.boolean_or(kTied, outer));
  if (root.has(kTied) && outer != config->tied_head) {
    return text.error(kTied, "contradicts the same field of the top level");
  }
  return Status::ok();
}

}  // namespace

Result<QwenConfig> read_qwen_config(const ConfigObject& root, const ConfigObject& text) {
  QwenConfig config;
  MOTLEY_RETURN_IF_ERROR(refuse_unsupported(text));
  MOTLEY_ASSIGN_OR_RETURN(config.hidden_size, text.integer("hidden_size", 1, kMaxWidth));
  MOTLEY_ASSIGN_OR_RETURN(config.vocab_size, text.integer("vocab_size", 1, kMaxVocabulary));
  MOTLEY_ASSIGN_OR_RETURN(config.context_length,
                          text.integer("max_position_embeddings", 1, kMaxContext));
  MOTLEY_ASSIGN_OR_RETURN(const double epsilon, text.number_or("rms_norm_eps", 1e-6, 1e-12, 1e-1));
  config.norm_epsilon = static_cast<float>(epsilon);
  MOTLEY_RETURN_IF_ERROR(read_layer_kinds(text, &config));
  MOTLEY_RETURN_IF_ERROR(read_attention(text, &config));
  MOTLEY_RETURN_IF_ERROR(read_delta(text, &config));
  MOTLEY_RETURN_IF_ERROR(read_experts(text, &config));
  MOTLEY_RETURN_IF_ERROR(read_drafts(text, &config));
  MOTLEY_RETURN_IF_ERROR(read_tied_head(root, text, &config));
  MOTLEY_ASSIGN_OR_RETURN(config.eos_tokens, read_eos_tokens(text));
  MOTLEY_ASSIGN_OR_RETURN(const std::vector<int32_t> outer_eos, read_eos_tokens(root));
  add_eos_tokens(outer_eos, &config.eos_tokens);
  return config;
}

}  // namespace motley
