#include "spec/gguf_names.h"

#include <fmt/format.h>

#include <array>
#include <charconv>

namespace motley {
namespace {

struct Name {
  std::string_view canonical;
  std::string_view gguf;
  bool bare = false;
};

constexpr std::array kGlobal = {
    Name{"embedding", "token_embd"},
    Name{"final_norm", "output_norm"},
    Name{"head", "output"},
};

// Behind "layers.N." and "blk.N.".
constexpr std::array kLayer = {
    Name{"mixer_norm", "attn_norm"},
    Name{"feed_forward_norm", "post_attention_norm"},
    Name{"attention.q_proj", "attn_q"},
    Name{"attention.k_proj", "attn_k"},
    Name{"attention.v_proj", "attn_v"},
    Name{"attention.o_proj", "attn_output"},
    Name{"attention.q_norm", "attn_q_norm"},
    Name{"attention.k_norm", "attn_k_norm"},
    Name{"delta.in_proj_qkv", "attn_qkv"},
    Name{"delta.in_proj_z", "attn_gate"},
    Name{"delta.in_proj_b", "ssm_beta"},
    Name{"delta.in_proj_a", "ssm_alpha"},
    Name{"delta.convolution", "ssm_conv1d"},
    Name{"delta.a_log", "ssm_a", true},
    Name{"delta.dt_bias", "ssm_dt.bias", true},
    Name{"delta.norm", "ssm_norm"},
    Name{"delta.out_proj", "ssm_out"},
    Name{"moe.router", "ffn_gate_inp"},
    Name{"moe.experts.gate", "ffn_gate_exps"},
    Name{"moe.experts.up", "ffn_up_exps"},
    Name{"moe.experts.down", "ffn_down_exps"},
    Name{"moe.shared.gate", "ffn_gate_shexp"},
    Name{"moe.shared.up", "ffn_up_shexp"},
    Name{"moe.shared.down", "ffn_down_shexp"},
    Name{"moe.shared_expert_gate", "ffn_gate_inp_shexp"},
    Name{"mlp.gate", "ffn_gate"},
    Name{"mlp.up", "ffn_up"},
    Name{"mlp.down", "ffn_down"},
};

// Behind "drafts.N." and "blk.(layers + N).".
constexpr std::array kDraft = {
    Name{"projection", "nextn.eh_proj"},
    Name{"embedding_norm", "nextn.enorm"},
    Name{"hidden_norm", "nextn.hnorm"},
    Name{"final_norm", "nextn.shared_head_norm"},
};

template <size_t kSize>
const Name* find(const std::array<Name, kSize>& names, std::string_view canonical) {
  for (const Name& name : names) {
    if (name.canonical == canonical) return &name;
  }
  return nullptr;
}

// Takes "PREFIX.N." off `name` and returns N, or -1.
int64_t take_index(std::string_view prefix, std::string_view* name) {
  if (!name->starts_with(prefix)) return -1;
  const std::string_view rest = name->substr(prefix.size());
  int64_t index = -1;
  const auto [end, error] = std::from_chars(rest.data(), rest.data() + rest.size(), index);
  if (error != std::errc() || end == rest.data() + rest.size() || *end != '.') return -1;
  *name = rest.substr(static_cast<size_t>(end - rest.data()) + 1);
  return index;
}

void set_whole(std::string module, bool bare, TensorSpec* tensor) {
  const int rows_at = tensor->role == TensorRole::kExperts ? 1 : 0;
  tensor->pieces = {
      {.module = std::move(module), .bare = bare, .row_count = tensor->shape[rows_at]}};
}

// Beta and alpha in one matrix, qkv and z in one: rows stay grouped by key head, as the family's
// own pieces take them.
bool rename_grouped(const std::string& block, std::string_view leaf, const TensorCatalog& tensors,
                    TensorSpec* tensor) {
  const bool is_gate = leaf == "delta.in_proj_b" || leaf == "delta.in_proj_a";
  const bool is_qkvz = leaf == "delta.in_proj_qkv" || leaf == "delta.in_proj_z";
  if (!is_gate && !is_qkvz) return false;
  const std::string module = block + (is_gate ? "ssm_ba" : "ssm_in");
  if (tensors.find(module + ".weight") == nullptr) return false;
  for (TensorPiece& piece : tensor->pieces) piece.module = module;
  return true;
}

// Gate and up in one stack, gate first.
bool rename_fused_experts(const std::string& block, std::string_view leaf,
                          const TensorCatalog& tensors, TensorSpec* tensor) {
  const bool is_up = leaf == "moe.experts.up";
  if (!is_up && leaf != "moe.experts.gate") return false;
  const std::string module = block + "ffn_gate_up_exps";
  if (tensors.find(module + ".weight") == nullptr) return false;
  set_whole(module, false, tensor);
  if (is_up) tensor->pieces.front().row_begin = tensor->pieces.front().row_count;
  return true;
}

}  // namespace

Status rename_for_gguf(int64_t layers, const TensorCatalog& tensors, TensorSpec* tensor) {
  std::string_view leaf = tensor->name;
  const Name* name = find(kGlobal, leaf);
  std::string block;
  if (name == nullptr) {
    int64_t index = take_index("layers.", &leaf);
    if (index < 0 && (index = take_index("drafts.", &leaf)) >= 0) index += layers;
    block = fmt::format("blk.{}.", index);
    const bool of_draft = index >= layers;
    if (of_draft) name = find(kDraft, leaf);
    if (of_draft && name == nullptr && leaf.starts_with("layer.")) leaf.remove_prefix(6);
    if (name == nullptr) name = find(kLayer, leaf);
  }
  if (name == nullptr) {
    return unsupported(fmt::format("GGUF files have no name for '{}'", tensor->name));
  }
  if (rename_grouped(block, leaf, tensors, tensor)) return Status::ok();
  if (rename_fused_experts(block, leaf, tensors, tensor)) return Status::ok();
  set_whole(fmt::format("{}{}", block, name->gguf), name->bare, tensor);
  return Status::ok();
}

GgufHeadRows head_rows_of(std::string_view canonical_name) {
  if (take_index("layers.", &canonical_name) < 0) return GgufHeadRows::kNone;
  for (const std::string_view name :
       {"delta.in_proj_qkv", "delta.in_proj_z", "delta.convolution"}) {
    if (name == canonical_name) return GgufHeadRows::kWholeHeads;
  }
  for (const std::string_view name :
       {"delta.in_proj_b", "delta.in_proj_a", "delta.a_log", "delta.dt_bias"}) {
    if (name == canonical_name) return GgufHeadRows::kOnePerHead;
  }
  return GgufHeadRows::kNone;
}

}  // namespace motley
