// The fields that Qwen3.5-MoE and Qwen3-Next share, range-checked.
// Source: transformers models/qwen3_5_moe and models/qwen3_next, configuration files.
#pragma once

#include <cstdint>
#include <vector>

#include "base/status.h"
#include "spec/config_json.h"

namespace motley {

struct QwenConfig {
  int64_t hidden_size = 0;
  int64_t vocab_size = 0;
  int64_t context_length = 0;
  float norm_epsilon = 0;
  bool tied_head = false;
  std::vector<bool> is_full_attention;  // per layer; otherwise gated delta

  int heads = 0;
  int kv_heads = 0;
  int head_dim = 0;
  int rotary_dim = 0;
  double rope_theta = 0;

  int key_heads = 0;
  int value_heads = 0;
  int key_head_dim = 0;
  int value_head_dim = 0;
  int conv_kernel = 0;

  int experts = 0;
  int experts_per_token = 0;
  int expert_size = 0;
  int shared_expert_size = 0;

  int draft_layers = 0;  // 0: draft tensors in the file are skipped
  std::vector<int32_t> eos_tokens;

  int key_dim() const { return key_heads * key_head_dim; }
  int value_dim() const { return value_heads * value_head_dim; }
};

// `text` holds the fields; `root` is the top level of the same file (equal to `text` when flat).
Result<QwenConfig> read_qwen_config(const ConfigObject& root, const ConfigObject& text);

}  // namespace motley
