#include "spec/families/qwen_builder.h"

#include <fmt/format.h>

#include "spec/quantization_config.h"

namespace motley {
namespace {

class QwenBuilder {
 public:
  QwenBuilder(const QwenConfig& config, const QwenFamily& family, QwenNames names,
              const TensorCatalog& catalog)
      : config_(config), family_(family), names_(std::move(names)), catalog_(catalog) {}

  Result<ModelSpec> build() {
    spec_.hidden_size = config_.hidden_size;
    spec_.vocab_size = config_.vocab_size;
    spec_.context_length = config_.context_length;
    spec_.eos_tokens = config_.eos_tokens;
    spec_.embedding = matrix("embedding", names_.prefix + "embed_tokens", config_.vocab_size,
                             config_.hidden_size, "embedding");
    for (size_t i = 0; i < config_.is_full_attention.size(); ++i) {
      MOTLEY_RETURN_IF_ERROR(add_layer(i));
    }
    spec_.final_norm = norm("final_norm", names_.prefix + "norm", config_.hidden_size, "norm");
    add_head();
    add_skipped();
    MOTLEY_RETURN_IF_ERROR(add_draft());
    return std::move(spec_);
  }

 private:
  // A layer under construction: names in reports and in the file.
  struct Place {
    std::string name;    // "layers.3."
    std::string module;  // "model.language_model.layers.3."
    bool is_draft = false;

    std::string part(std::string_view trunk_part) const {
      return std::string(is_draft ? "draft" : trunk_part);
    }
  };

  TensorHandle add(TensorSpec tensor) {
    spec_.tensors.push_back(std::move(tensor));
    return {static_cast<int32_t>(spec_.tensors.size()) - 1};
  }
  TensorHandle matrix(std::string name, std::string module, int64_t rows, int64_t cols,
                      std::string part) {
    return add({.name = std::move(name),
                .role = TensorRole::kMatrix,
                .shape = {rows, cols},
                .pieces = {{.module = std::move(module), .row_count = rows}},
                .part = std::move(part)});
  }
  TensorHandle vector(std::string name, std::string module, bool bare, int64_t size,
                      std::string part) {
    return add({.name = std::move(name),
                .role = TensorRole::kVector,
                .shape = {size},
                .pieces = {{.module = std::move(module), .bare = bare, .row_count = size}},
                .part = std::move(part)});
  }
  NormSpec norm(std::string name, std::string module, int64_t size, std::string part) {
    // Zero-centred in the Hugging Face layout; MLX files have the 1 added.
    return {.weight = vector(std::move(name), std::move(module), false, size, std::move(part)),
            .epsilon = config_.norm_epsilon,
            .weight_offset = names_.layout == CheckpointLayout::kMlx ? 0.0f : 1.0f};
  }

  Status add_layer(size_t index) {
    const Place place{.name = fmt::format("layers.{}.", index),
                      .module = fmt::format("{}layers.{}.", names_.prefix, index)};
    const bool dense = !family_.is_dense.empty() && family_.is_dense[index];
    LayerSpec layer;
    MOTLEY_RETURN_IF_ERROR(fill_layer(place, config_.is_full_attention[index], dense, &layer));
    spec_.layers.push_back(std::move(layer));
    return Status::ok();
  }

  Status fill_layer(const Place& place, bool full_attention, bool dense, LayerSpec* layer) {
    layer->mixer_norm = norm(place.name + "mixer_norm", place.module + "input_layernorm",
                             config_.hidden_size, place.part("norm"));
    if (full_attention) {
      layer->mixer = attention(place);
    } else {
      layer->mixer = delta(place);
    }
    layer->feed_forward_norm =
        norm(place.name + "feed_forward_norm", place.module + "post_attention_layernorm",
             config_.hidden_size, place.part("norm"));
    if (dense) {
      layer->feed_forward = dense_mlp(place);
      return Status::ok();
    }
    MOTLEY_ASSIGN_OR_RETURN(layer->feed_forward, moe(place));
    return Status::ok();
  }

  GatedAttentionSpec attention(const Place& place) {
    const std::string name = place.name + "attention.";
    const std::string module = place.module + "self_attn.";
    const std::string part = place.part("attention");
    const int64_t q_rows = int64_t{config_.heads} * config_.head_dim;
    const int64_t kv_rows = int64_t{config_.kv_heads} * config_.head_dim;
    const int64_t hidden = config_.hidden_size;
    return {
        .heads = config_.heads,
        .kv_heads = config_.kv_heads,
        .head_dim = config_.head_dim,
        .rotary_dim = config_.rotary_dim,
        .rope_theta = config_.rope_theta,
        .q_proj = matrix(name + "q_proj", module + "q_proj", 2 * q_rows, hidden, part),
        .k_proj = matrix(name + "k_proj", module + "k_proj", kv_rows, hidden, part),
        .v_proj = matrix(name + "v_proj", module + "v_proj", kv_rows, hidden, part),
        .o_proj = matrix(name + "o_proj", module + "o_proj", hidden, q_rows, part),
        .q_norm = norm(name + "q_norm", module + "q_norm", config_.head_dim, place.part("norm")),
        .k_norm = norm(name + "k_norm", module + "k_norm", config_.head_dim, place.part("norm"))};
  }

  GatedDeltaSpec delta(const Place& place) {
    const std::string name = place.name + "delta.";
    const std::string module = place.module + "linear_attn.";
    const int64_t channels = 2 * config_.key_dim() + config_.value_dim();
    GatedDeltaSpec result{.key_heads = config_.key_heads,
                          .value_heads = config_.value_heads,
                          .key_head_dim = config_.key_head_dim,
                          .value_head_dim = config_.value_head_dim,
                          .conv_kernel = config_.conv_kernel};
    if (family_.projections == DeltaProjections::kSeparate) {
      add_separate_projections(name, module, &result);
    } else {
      add_grouped_projections(name, module, &result);
    }
    result.convolution = add({.name = name + "convolution",
                              .role = TensorRole::kConvolution,
                              .shape = {channels, config_.conv_kernel},
                              .pieces = {{.module = module + "conv1d", .row_count = channels}},
                              .part = "delta"});
    result.a_log = vector(name + "a_log", module + "A_log", true, config_.value_heads, "delta");
    result.dt_bias =
        vector(name + "dt_bias", module + "dt_bias", true, config_.value_heads, "delta");
    // The one norm that is not zero-centred, in either layout.
    result.norm = {
        .weight = vector(name + "norm", module + "norm", false, config_.value_head_dim, "norm"),
        .epsilon = config_.norm_epsilon,
        .weight_offset = 0.0f};
    result.out_proj = matrix(name + "out_proj", module + "out_proj", config_.hidden_size,
                             config_.value_dim(), "delta");
    return result;
  }

  void add_separate_projections(const std::string& name, const std::string& module,
                                GatedDeltaSpec* delta) {
    const int64_t hidden = config_.hidden_size;
    const int64_t channels = 2 * config_.key_dim() + config_.value_dim();
    const auto project = [&](std::string_view leaf, int64_t rows) {
      return matrix(fmt::format("{}{}", name, leaf), fmt::format("{}{}", module, leaf), rows,
                    hidden, "delta");
    };
    delta->in_proj_qkv = project("in_proj_qkv", channels);
    delta->in_proj_z = project("in_proj_z", config_.value_dim());
    delta->in_proj_b = project("in_proj_b", config_.value_heads);
    delta->in_proj_a = project("in_proj_a", config_.value_heads);
  }

  // Rows of key head g in in_proj_qkvz: q, k, then v and z of its value heads; in in_proj_ba: b,
  // then a. Taking them group by group gives the order of the separate projections.
  void add_grouped_projections(const std::string& name, const std::string& module,
                               GatedDeltaSpec* delta) {
    const int64_t dk = config_.key_head_dim;
    const int64_t heads_per_group = config_.value_heads / config_.key_heads;
    const int64_t dv = heads_per_group * config_.value_head_dim;
    const auto gather = [&](std::string_view leaf, std::string_view source, int64_t stride,
                            const std::vector<std::pair<int64_t, int64_t>>& blocks) {
      TensorSpec tensor{
          .name = fmt::format("{}{}", name, leaf), .role = TensorRole::kMatrix, .part = "delta"};
      int64_t rows = 0;
      for (const auto& [offset, count] : blocks) {
        for (int64_t group = 0; group < config_.key_heads; ++group) {
          tensor.pieces.push_back({.module = fmt::format("{}{}", module, source),
                                   .row_begin = group * stride + offset,
                                   .row_count = count});
          rows += count;
        }
      }
      tensor.shape = {rows, config_.hidden_size};
      return add(std::move(tensor));
    };
    const int64_t qkvz_stride = 2 * dk + 2 * dv;
    const int64_t ba_stride = 2 * heads_per_group;
    delta->in_proj_qkv =
        gather("in_proj_qkv", "in_proj_qkvz", qkvz_stride, {{0, dk}, {dk, dk}, {2 * dk, dv}});
    delta->in_proj_z = gather("in_proj_z", "in_proj_qkvz", qkvz_stride, {{2 * dk + dv, dv}});
    delta->in_proj_b = gather("in_proj_b", "in_proj_ba", ba_stride, {{0, heads_per_group}});
    delta->in_proj_a =
        gather("in_proj_a", "in_proj_ba", ba_stride, {{heads_per_group, heads_per_group}});
  }

  DenseMlpSpec dense_mlp(const Place& place) {
    const std::string name = place.name + "mlp.";
    const std::string module = place.module + "mlp.";
    const int64_t size = family_.dense_intermediate_size;
    const int64_t hidden = config_.hidden_size;
    const std::string part = place.part("dense mlp");
    return {.intermediate_size = static_cast<int>(size),
            .gate = matrix(name + "gate", module + "gate_proj", size, hidden, part),
            .up = matrix(name + "up", module + "up_proj", size, hidden, part),
            .down = matrix(name + "down", module + "down_proj", hidden, size, part)};
  }

  Result<MoeSpec> moe(const Place& place) {
    const std::string name = place.name + "moe.";
    const std::string module = place.module + "mlp.";
    const int64_t hidden = config_.hidden_size;
    const int64_t shared = config_.shared_expert_size;
    const std::string part = place.part("shared expert");
    const std::string router_part = place.part("router");
    MoeSpec result{.experts = config_.experts,
                   .experts_per_token = config_.experts_per_token,
                   .intermediate_size = config_.expert_size,
                   .shared_intermediate_size = config_.shared_expert_size,
                   .normalise = family_.normalise_experts};
    result.router = matrix(name + "router", module + "gate", config_.experts, hidden, router_part);
    MOTLEY_RETURN_IF_ERROR(add_experts(place, &result));
    const std::string from = module + "shared_expert.";
    result.shared_gate = matrix(name + "shared.gate", from + "gate_proj", shared, hidden, part);
    result.shared_up = matrix(name + "shared.up", from + "up_proj", shared, hidden, part);
    result.shared_down = matrix(name + "shared.down", from + "down_proj", hidden, shared, part);
    result.shared_expert_gate =
        matrix(name + "shared_expert_gate", module + "shared_expert_gate", 1, hidden, router_part);
    return result;
  }

  // MLX: one stack per matrix. Hugging Face: gate and up in one bare stack, or one by one.
  Status add_experts(const Place& place, MoeSpec* moe) {
    const std::string module = place.module + "mlp.";
    const bool is_mlx = names_.layout == CheckpointLayout::kMlx;
    const bool is_planned = catalog_.planned_layout().has_value();
    const bool has_switch = catalog_.find(module + "switch_mlp.gate_proj.weight") != nullptr;
    if (!is_planned && has_switch != is_mlx) {
      return corrupt(fmt::format(
          "tensor '{}switch_mlp.gate_proj.weight' is {} in a checkpoint of the {} layout; a mix "
          "is refused",
          module, has_switch ? "present" : "missing", is_mlx ? "MLX" : "Hugging Face"));
    }
    const bool stacks =
        family_.projections == DeltaProjections::kSeparate && !catalog_.planned_separate_experts();
    const bool fused =
        is_planned ? stacks : catalog_.find(module + "experts.gate_up_proj") != nullptr;
    const int64_t hidden = config_.hidden_size;
    const int64_t size = config_.expert_size;
    const auto stack = [&](std::string_view leaf, int64_t rows, int64_t cols,
                           std::string_view fused_leaf, int64_t fused_begin) {
      TensorPiece piece{.row_count = rows};
      if (is_mlx) {
        piece.module = fmt::format("{}switch_mlp.{}_proj", module, leaf);
      } else if (fused) {
        piece.module = fmt::format("{}experts.{}", module, fused_leaf);
        piece.bare = true;
        piece.row_begin = fused_begin;
      } else {
        piece.module = fmt::format("{}experts.{{}}.{}_proj", module, leaf);
      }
      return add({.name = fmt::format("{}moe.experts.{}", place.name, leaf),
                  .role = TensorRole::kExperts,
                  .shape = {config_.experts, rows, cols},
                  .pieces = {std::move(piece)},
                  .part = place.part("experts")});
    };
    moe->gate = stack("gate", size, hidden, "gate_up_proj", 0);
    moe->up = stack("up", size, hidden, "gate_up_proj", size);
    moe->down = stack("down", hidden, size, "down_proj", 0);
    return Status::ok();
  }

  void add_head() {
    if (!config_.tied_head) {
      spec_.head = matrix("head", names_.head, config_.vocab_size, config_.hidden_size, "head");
      return;
    }
    spec_.head = spec_.embedding;
    spec_.skipped.push_back({names_.head + ".", std::string(kTiedReason)});
  }

  void add_skipped() {
    for (const char* prefix :
         {"model.visual.", "visual.", "vision_tower.", "model.vision_tower."}) {
      spec_.skipped.push_back({prefix, "vision tower: image input is not supported"});
    }
    for (size_t i = 0; i < config_.is_full_attention.size(); ++i) {
      if (!config_.is_full_attention[i]) continue;
      spec_.skipped.push_back(
          {fmt::format("{}layers.{}.self_attn.rotary_emb.inv_freq", names_.prefix, i),
           "rotary frequencies are computed"});
    }
  }

  // The draft layer keeps its Hugging Face names in either layout.
  Status add_draft() {
    if (config_.draft_layers == 0) {
      spec_.skipped.push_back({"mtp.", "config.json says that there are no draft layers"});
      return Status::ok();
    }
    if (!catalog_.planned_drafts() && catalog_.find("mtp.fc.weight") == nullptr &&
        catalog_.find("mtp.fc.weight_packed") == nullptr) {
      return Status::ok();
    }
    const int64_t hidden = config_.hidden_size;
    const Place place{.name = "drafts.0.layer.", .module = "mtp.layers.0.", .is_draft = true};
    DraftSpec draft;
    draft.projection = matrix("drafts.0.projection", "mtp.fc", hidden, 2 * hidden, "draft");
    draft.embedding_norm =
        norm("drafts.0.embedding_norm", "mtp.pre_fc_norm_embedding", hidden, "draft");
    draft.hidden_norm = norm("drafts.0.hidden_norm", "mtp.pre_fc_norm_hidden", hidden, "draft");
    MOTLEY_RETURN_IF_ERROR(fill_layer(place, true, false, &draft.layer));
    draft.final_norm = norm("drafts.0.final_norm", "mtp.norm", hidden, "draft");
    spec_.drafts.push_back(std::move(draft));
    return Status::ok();
  }

  const QwenConfig& config_;
  const QwenFamily& family_;
  const QwenNames names_;
  const TensorCatalog& catalog_;
  ModelSpec spec_;
};

}  // namespace

Result<ModelSpec> build_qwen_spec(const ConfigJson& file, const QwenConfig& config,
                                  const QwenFamily& family, const TensorCatalog& catalog) {
  MOTLEY_ASSIGN_OR_RETURN(QwenNames names, find_qwen_names(config, family, catalog));
  const bool is_planned = catalog.planned_layout().has_value();
  for (const std::string_view key : {"quantization", "quantization_config"}) {
    if (key == "quantization_config" && has_quant_method(file.root())) continue;
    if (!is_planned && names.layout == CheckpointLayout::kHuggingFace && file.root().has(key)) {
      return file.root().error(
          key, "belongs to the MLX layout, but the tensors have the Hugging Face one");
    }
  }
  return QwenBuilder(config, family, std::move(names), catalog).build();
}

}  // namespace motley
