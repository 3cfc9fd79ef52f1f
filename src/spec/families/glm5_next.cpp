// GLM-5.3-Flash, text model: Kimi delta attention in most layers, latent attention over pools of
// keys in the others, residual streams with hyper-connections, feed-forwards with a limit.
// Source: transformers models/glm5_next.
#include <fmt/format.h>

#include "spec/families/families.h"
#include "spec/families/glm_builder.h"
#include "spec/state_layout.h"

namespace motley {
namespace {

constexpr int64_t kMaxHeads = 1 << 10;
constexpr int64_t kMaxHeadDim = 1 << 12;
constexpr int64_t kMaxKernel = 16;
constexpr int64_t kMaxStreams = 8;  // kMostStreams of ops/hyper_connection.h
constexpr int64_t kMaxIterations = 1000;

struct NextConfig {
  GlmConfig glm;
  std::vector<bool> is_linear;  // per layer
  int linear_heads = 0;
  int linear_head_dim = 0;
  int linear_kernel = 0;
  bool bounded = true;
  float lower_bound = -5.0f;
  ResidualSpec residual;
  float swiglu_limit = kNoActivationLimit;
};

Status read_layer_kinds(const ConfigObject& text, NextConfig* config) {
  const int layers = config->glm.layers();
  MOTLEY_ASSIGN_OR_RETURN(const std::vector<std::string> kinds, text.texts("layer_types"));
  if (!kinds.empty() && std::ssize(kinds) != layers) {
    return text.error("layer_types",
                      fmt::format("has {} entries for {} layers", kinds.size(), layers));
  }
  for (const std::string& kind : kinds) {
    const bool is_linear = kind == "linear_attention";
    if (!is_linear && kind != "deepseek_sparse_attention" && kind != "full_attention") {
      return text.unsupported_value("layer_types",
                                    fmt::format("unknown layer kind {}", json_excerpt(kind)));
    }
    config->is_linear.push_back(is_linear);
  }
  for (int i = 0; kinds.empty() && i < layers; ++i) config->is_linear.push_back(i % 4 != 3);
  return Status::ok();
}

// A missing bound is the default one. Only a bound that says null is none.
Status read_bound(const ConfigObject& object, std::string_view key, bool null_is_none,
                  NextConfig* config) {
  const JsonValue* value = object.value().find(key);
  if (value != nullptr && value->is_null() && null_is_none) {
    config->bounded = false;
    return Status::ok();
  }
  MOTLEY_ASSIGN_OR_RETURN(const double bound, object.number_or(key, -5.0, -80.0, -1e-6));
  config->lower_bound = static_cast<float>(bound);
  return Status::ok();
}

// The same fields have two spellings: flat, or as an object.
Status read_linear(const ConfigObject& text, NextConfig* config) {
  const bool is_object = text.has("linear_attn_config");
  ConfigObject place = text;
  if (is_object) {
    MOTLEY_ASSIGN_OR_RETURN(place, text.object("linear_attn_config"));
  }
  const auto read = [&](std::string_view nested, std::string_view flat, int64_t most, int* out) {
    const Result<int64_t> value = place.integer(is_object ? nested : flat, 1, most);
    if (value.is_ok()) *out = static_cast<int>(*value);
    return value.status();
  };
  MOTLEY_RETURN_IF_ERROR(
      read("head_dim", "linear_head_dim", kMaxHeadDim, &config->linear_head_dim));
  MOTLEY_RETURN_IF_ERROR(read("num_heads", "linear_num_heads", kMaxHeads, &config->linear_heads));
  MOTLEY_RETURN_IF_ERROR(
      read("short_conv_kernel_size", "linear_conv_kernel_dim", kMaxKernel, &config->linear_kernel));
  if (config->linear_kernel < 2) {
    return place.error(is_object ? "short_conv_kernel_size" : "linear_conv_kernel_dim",
                       "must be at least 2");
  }
  if (!is_object) return read_bound(text, "linear_lower_bound", true, config);
  MOTLEY_ASSIGN_OR_RETURN(const bool safe, place.boolean_or("safe_gate", true));
  return read_bound(place, "gate_lower_bound", !safe, config);
}

Status read_pools(const ConfigObject& text, GlmConfig* glm) {
  constexpr std::string_view kPool = "index_kpool";
  constexpr int64_t kPage = StateLayout::kTokensPerPage;
  // Never assumed: the reference's default is 16, and released files have 4.
  MOTLEY_ASSIGN_OR_RETURN(const int64_t pool, text.integer(kPool, 1, kPage));
  if (glm->index_top_k % pool != 0) {
    return text.error(kPool,
                      fmt::format("{} does not divide index_topk {}", pool, glm->index_top_k));
  }
  // Pages of whole rows, and bytes per token that are whole elements.
  if (kPage % pool != 0 || glm->index_head_dim % pool != 0) {
    return text.unsupported_value(
        kPool, fmt::format("{} is not supported; it must divide {} and index_head_dim {}", pool,
                           kPage, glm->index_head_dim));
  }
  glm->index_pool = static_cast<int>(pool);
  MOTLEY_ASSIGN_OR_RETURN(glm->index_tail, text.boolean_or("index_kpool_always_select_tail", true));
  return Status::ok();
}

// Layers of linear attention lie between those with an indexer, and the reference carries a choice
// to the next layer only: every indexer is a layer's own.
Status refuse_shared_indexers(const ConfigObject& text, const NextConfig& config) {
  MOTLEY_ASSIGN_OR_RETURN(const std::vector<std::string> kinds, text.texts("indexer_types"));
  if (!kinds.empty() && kinds.size() != config.is_linear.size()) {
    return text.error("indexer_types", fmt::format("has {} entries for {} layers", kinds.size(),
                                                   config.is_linear.size()));
  }
  for (size_t i = 0; i < kinds.size(); ++i) {
    if (config.is_linear[i] || kinds[i] == "full") continue;
    return text.unsupported_value(
        "indexer_types",
        fmt::format("layer {} has {}; only full is supported", i, json_excerpt(kinds[i])));
  }
  return Status::ok();
}

Status read_streams(const ConfigObject& text, NextConfig* config) {
  MOTLEY_ASSIGN_OR_RETURN(const int64_t streams, text.integer("hc_mult", 2, kMaxStreams));
  MOTLEY_ASSIGN_OR_RETURN(const double epsilon, text.number_or("hc_eps", 1e-6, 1e-12, 1e-1));
  MOTLEY_ASSIGN_OR_RETURN(const int64_t iterations,
                          text.integer_or("hc_sinkhorn_iters", 20, 1, kMaxIterations));
  MOTLEY_ASSIGN_OR_RETURN(const double post, text.number_or("mhc_post_mult_value", 2.0, 1e-3, 1e3));
  config->residual = {.streams = static_cast<int>(streams),
                      .sinkhorn_iterations = static_cast<int>(iterations),
                      .norm_epsilon = config->glm.norm_epsilon,
                      .epsilon = static_cast<float>(epsilon),
                      .post_scale = static_cast<float>(post)};
  return Status::ok();
}

Result<NextConfig> read_config(const ConfigObject& root, const ConfigObject& text) {
  NextConfig config;
  MOTLEY_ASSIGN_OR_RETURN(config.glm, read_glm_config(root, text, /*with_rotation=*/false));
  MOTLEY_ASSIGN_OR_RETURN(const int64_t rope,
                          text.integer_or("qk_rope_head_dim", 0, 0, kMaxHeadDim));
  if (rope != 0) {
    return text.unsupported_value("qk_rope_head_dim", "a rotation is not supported; 0 is");
  }
  MOTLEY_RETURN_IF_ERROR(read_layer_kinds(text, &config));
  MOTLEY_RETURN_IF_ERROR(read_linear(text, &config));
  MOTLEY_RETURN_IF_ERROR(read_pools(text, &config.glm));
  MOTLEY_RETURN_IF_ERROR(refuse_shared_indexers(text, config));
  MOTLEY_RETURN_IF_ERROR(read_streams(text, &config));
  if (text.has("swiglu_limit")) {
    MOTLEY_ASSIGN_OR_RETURN(const double limit, text.number("swiglu_limit", 1e-3, 1e6));
    config.swiglu_limit = static_cast<float>(limit);
  }
  return config;
}

ChannelDeltaSpec kimi_delta(const NextConfig& config, const GlmPlace& place, GlmBuilder& builder) {
  TensorList& list = builder.list();
  const int64_t hidden = config.glm.hidden_size;
  const int64_t dim = config.linear_head_dim;
  const int64_t width = config.linear_heads * dim;
  const std::string module = place.module + "self_attn.";
  const auto name = [&](std::string_view leaf) {
    return fmt::format("{}delta.{}", place.name, leaf);
  };
  const auto matrix = [&](std::string_view leaf, int64_t rows, int64_t cols) {
    return list.matrix(name(leaf), fmt::format("{}{}", module, leaf), rows, cols, "delta");
  };
  ChannelDeltaSpec delta{.heads = config.linear_heads,
                         .key_head_dim = config.linear_head_dim,
                         .value_head_dim = config.linear_head_dim,
                         .conv_kernel = config.linear_kernel,
                         .bounded = config.bounded,
                         .lower_bound = config.lower_bound};
  delta.q_proj = matrix("q_proj", width, hidden);
  delta.k_proj = matrix("k_proj", width, hidden);
  delta.v_proj = matrix("v_proj", width, hidden);
  delta.convolution = list.convolution(
      name("convolution"),
      {{module + "q_conv1d", width}, {module + "k_conv1d", width}, {module + "v_conv1d", width}},
      config.linear_kernel, "delta");
  delta.decay_in_proj = matrix("f_a_proj", dim, hidden);
  delta.decay_proj = matrix("f_b_proj", width, dim);
  delta.a_log =
      list.vector(name("A_log"), module + "A_log", config.linear_heads, "delta", /*bare=*/true);
  delta.dt_bias = list.vector(name("dt_bias"), module + "dt_bias", width, "delta", /*bare=*/true);
  delta.beta_proj = matrix("b_proj", config.linear_heads, hidden);
  delta.gate_in_proj = matrix("g_a_proj", dim, hidden);
  delta.gate_proj = matrix("g_b_proj", width, dim);
  delta.norm = builder.norm(name("o_norm"), module + "o_norm", dim, "norm");
  delta.out_proj = matrix("o_proj", hidden, width);
  return delta;
}

HyperConnectionSpec hyper_connection(const NextConfig& config, const GlmPlace& place,
                                     std::string_view site, GlmBuilder& builder) {
  const int64_t streams = config.residual.streams;
  const int64_t count = streams * (2 + streams);
  const std::string name = fmt::format("{}hyper.{}.", place.name, site);
  const std::string module = fmt::format("{}hc_{}_", place.module, site);
  TensorList& list = builder.list();
  return {.fn = list.table(name + "fn", module + "fn", count, streams * config.glm.hidden_size,
                           "hyper", /*bare=*/true),
          .base = list.vector(name + "base", module + "base", count, "hyper", /*bare=*/true),
          .scale = list.vector(name + "scale", module + "scale", 3, "hyper", /*bare=*/true)};
}

// Files of the text model alone do without the middle of the names.
std::string find_prefix(const TensorCatalog& catalog) {
  const bool is_flat = catalog.find("model.embed_tokens.weight") != nullptr;
  return is_flat ? "model." : "model.language_model.";
}

}  // namespace

Result<ModelSpec> build_glm5_next(const ConfigJson& file, const TensorCatalog& catalog) {
  const ConfigObject root = file.root();
  ConfigObject text = root;
  if (root.has("text_config")) {
    MOTLEY_ASSIGN_OR_RETURN(text, root.object("text_config"));
  }
  MOTLEY_ASSIGN_OR_RETURN(const NextConfig config, read_config(root, text));
  if (catalog.planned_layout() == CheckpointLayout::kMlx) {
    return root.unsupported_value("model_type", "cannot be written in the MLX layout");
  }
  ModelSpec spec;
  spec.residual = config.residual;
  GlmBuilder builder(config.glm, catalog, find_prefix(catalog), config.glm.norm_epsilon, &spec);
  builder.add_ends();
  for (int i = 0; i < config.glm.layers(); ++i) {
    const auto index = static_cast<size_t>(i);
    const GlmPlace place = builder.place(i);
    MixerSpec mixer;
    if (config.is_linear[index]) {
      mixer = kimi_delta(config, place, builder);
    } else {
      MOTLEY_ASSIGN_OR_RETURN(mixer, builder.latent_attention(place, KeySource::kOwn));
    }
    LayerSpec layer =
        builder.layer(place, std::move(mixer), config.glm.is_dense[index], config.swiglu_limit);
    layer.residual = ResidualKind::kStreams;
    layer.mixer_hyper = hyper_connection(config, place, "attn", builder);
    layer.feed_forward_hyper = hyper_connection(config, place, "ffn", builder);
    spec.layers.push_back(std::move(layer));
  }
  // The draft layer has plain residuals.
  MOTLEY_RETURN_IF_ERROR(builder.add_draft(config.swiglu_limit));
  for (const char* prefix : {"model.visual.", "visual."}) {
    spec.skipped.push_back({prefix, "vision tower: image input is not supported"});
  }
  return spec;
}

}  // namespace motley
