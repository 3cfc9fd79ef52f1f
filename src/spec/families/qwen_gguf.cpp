// GGUF metadata of qwen35moe and qwen3next as the config.json of Qwen3.5-MoE and Qwen3-Next.
// Source: llama.cpp conversion/qwen.py and src/models/{qwen35moe,qwen3next}.cpp.
#include <fmt/format.h>

#include <algorithm>
#include <optional>

#include "spec/config_json.h"
#include "spec/families/gguf_plans.h"

namespace motley {
namespace {

constexpr int64_t kMost = int64_t{1} << 32;  // the family has narrower limits
constexpr int64_t kMaxLayers = 1 << 10;

// Members of the object that becomes config.json.
class Members {
 public:
  void add(std::string_view name, int64_t value) { put(name, fmt::format("{}", value)); }
  // Shortest text that reads back as the same float32: files hold those.
  void add_float(std::string_view name, double value) {
    put(name, fmt::format("{}", static_cast<float>(value)));
  }
  void add_text(std::string_view name, std::string_view value) { put(name, json_quote(value)); }
  void put(std::string_view name, std::string_view json) {
    text_ += fmt::format("{}{}: {}", text_.empty() ? "{" : ", ", json_quote(name), json);
  }
  std::string finish() { return text_ + "}"; }

 private:
  std::string text_;
};

class QwenPlanner {
 public:
  QwenPlanner(std::string_view architecture, std::string_view model_type,
              const GgufMetadata& metadata, const TensorCatalog& tensors)
      : prefix_(fmt::format("{}.", architecture)), metadata_(metadata), tensors_(tensors) {
    members_.add_text("model_type", model_type);
  }

  Result<GgufModelPlan> plan(bool has_tiled_heads) {
    MOTLEY_RETURN_IF_ERROR(read_layers());
    MOTLEY_RETURN_IF_ERROR(read_widths());
    MOTLEY_RETURN_IF_ERROR(read_attention());
    MOTLEY_RETURN_IF_ERROR(read_delta());
    MOTLEY_RETURN_IF_ERROR(read_experts());
    MOTLEY_RETURN_IF_ERROR(read_stop_tokens());
    if (!has_tiled_heads) plan_.heads = {};
    list_changed_tensors();
    plan_.config = members_.finish();
    return std::move(plan_);
  }

 private:
  Result<int64_t> integer(std::string_view key, int64_t max = kMost) const {
    return metadata_.integer(prefix_ + std::string(key), 1, max);
  }
  Status copy(std::string_view key, std::string_view name) {
    MOTLEY_ASSIGN_OR_RETURN(const int64_t value, integer(key));
    members_.add(name, value);
    return Status::ok();
  }

  // A number, or a list with one for each layer in which layers without it have 0.
  Result<int64_t> same_everywhere(std::string_view key) const {
    const std::string name = prefix_ + std::string(key);
    const GgufValue* value = metadata_.find(name);
    const auto* list = value == nullptr ? nullptr : std::get_if<std::vector<int64_t>>(value);
    if (list == nullptr) return metadata_.integer(name, 1, kMost);
    int64_t found = 0;
    for (const int64_t entry : *list) {
      if (entry == 0 || entry == found) continue;
      if (found != 0 || entry < 0 || entry > kMost) {
        return unsupported(fmt::format("key '{}': layers differ: {} and {}", name, found, entry));
      }
      found = entry;
    }
    if (found == 0) return invalid_argument(fmt::format("key '{}': has no layer", name));
    return found;
  }

  Status read_layers() {
    MOTLEY_ASSIGN_OR_RETURN(const int64_t blocks, integer("block_count", kMaxLayers));
    MOTLEY_ASSIGN_OR_RETURN(
        const int64_t drafts,
        metadata_.integer_or(prefix_ + "nextn_predict_layers", 0, 0, blocks - 1));
    plan_.layers = blocks - drafts;
    // Files without the draft layer's tensors keep its number in some converters.
    plan_.drafts = drafts > 0 && tensors_.find(fmt::format("blk.{}.nextn.eh_proj.weight",
                                                           plan_.layers)) != nullptr;
    members_.add("num_hidden_layers", plan_.layers);
    members_.add("mtp_num_hidden_layers", drafts);
    return read_layer_kinds();
  }

  Status read_layer_kinds() {
    const std::string listed = prefix_ + "attention.recurrent_layers";
    if (!metadata_.has(listed)) {
      MOTLEY_ASSIGN_OR_RETURN(
          const int64_t interval,
          metadata_.integer_or(prefix_ + "full_attention_interval", 4, 1, kMaxLayers));
      for (int64_t i = 0; i < plan_.layers; ++i) {
        is_recurrent_.push_back((i + 1) % interval != 0);
      }
    } else {
      MOTLEY_ASSIGN_OR_RETURN(const std::vector<int64_t>* flags, metadata_.integers(listed));
      if (std::ssize(*flags) < plan_.layers) {
        return invalid_argument(
            fmt::format("key '{}': {} entries for {} layers", listed, flags->size(), plan_.layers));
      }
      for (int64_t i = 0; i < plan_.layers; ++i) {
        is_recurrent_.push_back((*flags)[static_cast<size_t>(i)] != 0);
      }
    }
    std::string kinds;
    for (const bool recurrent : is_recurrent_) {
      kinds += fmt::format("{}\"{}_attention\"", kinds.empty() ? "[" : ", ",
                           recurrent ? "linear" : "full");
    }
    members_.put("layer_types", kinds + "]");
    return Status::ok();
  }

  Status read_widths() {
    MOTLEY_RETURN_IF_ERROR(copy("embedding_length", "hidden_size"));
    MOTLEY_RETURN_IF_ERROR(copy("context_length", "max_position_embeddings"));
    MOTLEY_ASSIGN_OR_RETURN(const double epsilon,
                            metadata_.number(prefix_ + "attention.layer_norm_rms_epsilon"));
    members_.add_float("rms_norm_eps", epsilon);
    const CatalogEntry* embedding = tensors_.find("token_embd.weight");
    if (embedding == nullptr || embedding->shape.size() != 2) {
      return not_found("tensor 'token_embd.weight' is missing");
    }
    vocabulary_ = embedding->shape[0];
    members_.add("vocab_size", vocabulary_);
    const bool tied = tensors_.find("output.weight") == nullptr;
    members_.put("tie_word_embeddings", tied ? "true" : "false");
    return Status::ok();
  }

  Status read_attention() {
    MOTLEY_ASSIGN_OR_RETURN(const int64_t heads, same_everywhere("attention.head_count"));
    MOTLEY_ASSIGN_OR_RETURN(const int64_t kv_heads, same_everywhere("attention.head_count_kv"));
    MOTLEY_ASSIGN_OR_RETURN(const int64_t width, integer("attention.key_length"));
    MOTLEY_ASSIGN_OR_RETURN(const int64_t value_width, integer("attention.value_length"));
    if (width != value_width) {
      return unsupported(
          fmt::format("keys '{}attention.key_length' and value_length: {} and {} "
                      "differ",
                      prefix_, width, value_width));
    }
    const std::string scaling = prefix_ + "rope.scaling.type";
    if (metadata_.has(scaling)) {
      MOTLEY_ASSIGN_OR_RETURN(const std::string_view type, metadata_.text(scaling));
      if (type != "none") {
        return unsupported(
            fmt::format("key '{}': {} is not supported", scaling, json_excerpt(type)));
      }
    }
    MOTLEY_ASSIGN_OR_RETURN(const int64_t rotary, integer("rope.dimension_count", width));
    MOTLEY_ASSIGN_OR_RETURN(const double theta, metadata_.number(prefix_ + "rope.freq_base"));
    members_.add("num_attention_heads", heads);
    members_.add("num_key_value_heads", kv_heads);
    members_.add("head_dim", width);
    members_.add_float("rope_theta", theta);
    members_.put("partial_rotary_factor",
                 fmt::format("{}", static_cast<double>(rotary) / static_cast<double>(width)));
    return Status::ok();
  }

  Status read_delta() {
    MOTLEY_ASSIGN_OR_RETURN(const int64_t key_heads, integer("ssm.group_count", 1 << 10));
    MOTLEY_ASSIGN_OR_RETURN(const int64_t value_heads, integer("ssm.time_step_rank", 1 << 10));
    MOTLEY_ASSIGN_OR_RETURN(const int64_t inner, integer("ssm.inner_size"));
    if (value_heads % key_heads != 0 || inner % value_heads != 0) {
      return invalid_argument(
          fmt::format("keys '{}ssm.*': {} value heads of {} in all do not fit {} key heads",
                      prefix_, value_heads, inner, key_heads));
    }
    members_.add("linear_num_key_heads", key_heads);
    members_.add("linear_num_value_heads", value_heads);
    members_.add("linear_value_head_dim", inner / value_heads);
    MOTLEY_RETURN_IF_ERROR(copy("ssm.state_size", "linear_key_head_dim"));
    MOTLEY_RETURN_IF_ERROR(copy("ssm.conv_kernel", "linear_conv_kernel_dim"));
    plan_.heads = {
        .width = inner / value_heads, .key_heads = key_heads, .per_key = value_heads / key_heads};
    return Status::ok();
  }

  Status read_experts() {
    MOTLEY_RETURN_IF_ERROR(copy("expert_count", "num_experts"));
    MOTLEY_RETURN_IF_ERROR(copy("expert_used_count", "num_experts_per_tok"));
    MOTLEY_RETURN_IF_ERROR(copy("expert_feed_forward_length", "moe_intermediate_size"));
    return copy("expert_shared_feed_forward_length", "shared_expert_intermediate_size");
  }

  Status read_stop_tokens() {
    std::vector<int64_t> ids;
    for (const char* key : {"tokenizer.ggml.eos_token_id", "tokenizer.ggml.eot_token_id"}) {
      if (!metadata_.has(key)) continue;
      MOTLEY_ASSIGN_OR_RETURN(const int64_t id, metadata_.integer(key, 0, vocabulary_ - 1));
      if (std::find(ids.begin(), ids.end(), id) == ids.end()) ids.push_back(id);
    }
    if (!ids.empty()) members_.put("eos_token_id", fmt::format("[{}]", fmt::join(ids, ", ")));
    return Status::ok();
  }

  void list_changed_tensors() {
    for (size_t i = 0; i < is_recurrent_.size(); ++i) {
      if (!is_recurrent_[i]) continue;
      plan_.negative_exponentials.push_back(fmt::format("blk.{}.ssm_a", i));
      if (!plan_.heads.is_needed()) continue;
      plan_.tiled_columns.emplace(fmt::format("blk.{}.ssm_out.weight", i), plan_.heads);
    }
  }

  const std::string prefix_;
  const GgufMetadata& metadata_;
  const TensorCatalog& tensors_;
  Members members_;
  GgufModelPlan plan_;
  std::vector<bool> is_recurrent_;
  int64_t vocabulary_ = 0;
};

}  // namespace

Result<GgufModelPlan> plan_qwen35moe_gguf(const GgufMetadata& metadata,
                                          const TensorCatalog& tensors) {
  return QwenPlanner("qwen35moe", "qwen3_5_moe", metadata, tensors).plan(true);
}

Result<GgufModelPlan> plan_qwen3next_gguf(const GgufMetadata& metadata,
                                          const TensorCatalog& tensors) {
  return QwenPlanner("qwen3next", "qwen3_next", metadata, tensors).plan(false);
}

}  // namespace motley
