// The fields that the GLM families with latent attention share, range-checked.
// Source: transformers models/glm_moe_dsa, configuration file.
#pragma once

#include <cstdint>
#include <vector>

#include "base/status.h"
#include "spec/config_json.h"

namespace motley {

struct GlmConfig {
  int64_t hidden_size = 0;
  int64_t vocab_size = 0;
  int64_t context_length = 0;
  float norm_epsilon = 0;
  bool tied_head = false;
  std::vector<int32_t> eos_tokens;

  // Latent attention. head_dim of the file is not read: it is the rotated part or something else,
  // by version.
  int heads = 0;
  int q_rank = 0;
  int kv_rank = 0;
  int nope_dim = 0;
  int rope_dim = 0;
  int value_dim = 0;
  double rope_theta = 10000.0;
  bool attention_bias = false;

  int index_heads = 0;
  int index_head_dim = 0;
  int index_top_k = 0;
  bool index_interleaved = true;      // pairs of the indexer's rotation
  int index_pool = 0;                 // tokens that are scored together; 0: each by itself
  bool index_tail = true;             // tokens of the open pool are always seen
  std::vector<bool> has_own_indexer;  // per layer; the others share the choice of one before

  std::vector<bool> is_dense;  // per layer
  int64_t dense_size = 0;      // when any layer is
  int experts = 0;
  int experts_per_token = 0;
  int expert_size = 0;
  int shared_experts = 0;
  int groups = 1;
  int kept_groups = 1;
  bool normalise = true;
  float routed_scale = 1.0f;

  int draft_layers = 0;

  int layers() const { return static_cast<int>(is_dense.size()); }
  int shared_expert_size() const { return shared_experts * expert_size; }
};

// Everything but the pools, has_own_indexer and, unless with_rotation, the rotation (rope_dim 0
// then). `text` holds the fields; `root` is the top level of the same file (equal to `text` when
// flat).
Result<GlmConfig> read_glm_config(const ConfigObject& root, const ConfigObject& text,
                                  bool with_rotation);

// has_own_indexer, by indexer_types, index_topk_pattern, or index_topk_freq and its offset.
Status read_indexer_kinds(const ConfigObject& text, GlmConfig* config);

}  // namespace motley
