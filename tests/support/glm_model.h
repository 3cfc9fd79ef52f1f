// A small made-up checkpoint of GLM-5.x (latent attention), as names and shapes.
#pragma once

#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "spec/tensor_catalog.h"

namespace motley {

// Three layers, the first dense; the second shares the first one's indexer; a draft layer.
class GlmTestModel : public TensorCatalog {
 public:
  GlmTestModel() {
    add("model.embed_tokens.weight", {32, 64});
    add("model.norm.weight", {64});
    add("lm_head.weight", {32, 64});
    for (int layer = 0; layer <= 3; ++layer) add_layer(layer);
    const std::string draft = "model.layers.3.";
    add(draft + "eh_proj.weight", {64, 128});
    for (const char* leaf : {"enorm", "hnorm", "shared_head.norm"}) {
      add(draft + leaf + ".weight", {64});
    }
  }

  const CatalogEntry* find(std::string_view name) const override {
    const auto found = tensors.find(name);
    return found == tensors.end() ? nullptr : &found->second;
  }

  static std::string config() {
    return R"({"model_type":"glm_moe_dsa","hidden_size":64,"vocab_size":32,)"
           R"("num_hidden_layers":3,"max_position_embeddings":512,"rms_norm_eps":1e-5,)"
           R"("num_attention_heads":2,"q_lora_rank":48,"kv_lora_rank":32,"qk_nope_head_dim":16,)"
           R"("qk_rope_head_dim":8,"v_head_dim":24,"index_n_heads":2,"index_head_dim":16,)"
           R"("index_topk":8,"indexer_types":["full","shared","full"],"rope_theta":10000.0,)"
           R"("mlp_layer_types":["dense","sparse","sparse"],"intermediate_size":96,)"
           R"("n_routed_experts":4,"num_experts_per_tok":2,"moe_intermediate_size":32,)"
           R"("n_shared_experts":2,"routed_scaling_factor":2.5,"n_group":1,"topk_group":1,)"
           R"("hidden_act":"silu","attention_bias":false,"num_nextn_predict_layers":1,)"
           R"("eos_token_id":[3,5]})";
  }

  void add(const std::string& name, std::vector<int64_t> shape, DType dtype = DType::kBf16) {
    tensors[name] = {.dtype = dtype, .shape = std::move(shape)};
  }

  std::map<std::string, CatalogEntry, std::less<>> tensors;

 private:
  void add_layer(int layer) {
    const std::string name = "model.layers." + std::to_string(layer) + ".";
    add(name + "input_layernorm.weight", {64});
    add(name + "post_attention_layernorm.weight", {64});
    const std::string attention = name + "self_attn.";
    add(attention + "q_a_proj.weight", {48, 64});
    add(attention + "q_a_layernorm.weight", {48});
    add(attention + "q_b_proj.weight", {2 * 24, 48});
    add(attention + "kv_a_proj_with_mqa.weight", {40, 64});
    add(attention + "kv_a_layernorm.weight", {32});
    add(attention + "kv_b_proj.weight", {2 * 40, 32});
    add(attention + "o_proj.weight", {64, 48});
    if (layer != 1) add_indexer(attention + "indexer.");
    if (layer == 0) return add_mlp(name + "mlp.", 96);
    add(name + "mlp.gate.weight", {4, 64});
    add(name + "mlp.gate.e_score_correction_bias", {4}, DType::kF32);
    for (int expert = 0; expert < 4; ++expert) {
      add_mlp(name + "mlp.experts." + std::to_string(expert) + ".", 32);
    }
    add_mlp(name + "mlp.shared_experts.", 64);
  }
  void add_indexer(const std::string& name) {
    add(name + "wq_b.weight", {2 * 16, 48});
    add(name + "wk.weight", {16, 64});
    add(name + "weights_proj.weight", {2, 64});
    add(name + "k_norm.weight", {16});
    add(name + "k_norm.bias", {16});
  }
  void add_mlp(const std::string& name, int64_t size) {
    add(name + "gate_proj.weight", {size, 64});
    add(name + "up_proj.weight", {size, 64});
    add(name + "down_proj.weight", {64, size});
  }
};

}  // namespace motley
