// Builds a ModelSpec of the Qwen3.5-MoE and Qwen3-Next kind from configuration and tensor names.
//
// Two layouts of the same tensors: Hugging Face (norms stored as w with 1 + w meant, convolution
// [C, 1, k], experts "mlp.experts.*") and MLX (1 already added, convolution [C, k, 1], experts
// "mlp.switch_mlp.*"). The convolution decides; names that belong to the other layout are refused
// as a mix, because a wrong guess about the norms gives fluent nonsense. docs/formats.md lists the
// names, including the draft layer's.
// Source: transformers and ml-explore/mlx-lm, models/{qwen3_5_moe,qwen3_next}; layout of the delta
// projections of Qwen3-Next: fix_query_key_value_ordering.
#pragma once

#include <string>

#include "base/status.h"
#include "spec/config_json.h"
#include "spec/families/qwen_config.h"
#include "spec/model_spec.h"
#include "spec/tensor_catalog.h"

namespace motley {

// How the input projections of a gated delta layer lie in the file.
enum class DeltaProjections : uint8_t {
  kSeparate,  // in_proj_qkv, in_proj_z, in_proj_b, in_proj_a
  kGrouped,   // in_proj_qkvz and in_proj_ba, rows grouped by key head
};

struct QwenNames {
  CheckpointLayout layout = CheckpointLayout::kHuggingFace;
  std::string prefix;  // of "embed_tokens", "layers.0.", "norm"
  std::string head;    // module of the output head
};

// What differs between the families, per layer.
struct QwenFamily {
  DeltaProjections projections = DeltaProjections::kSeparate;
  bool normalise_experts = true;
  std::vector<bool> is_dense;  // per layer; empty: none
  int64_t dense_intermediate_size = 0;
};

// Finds prefix and layout; errors name the tensor that is missing or contradicts. For a planned
// checkpoint: those of the family's released files.
Result<QwenNames> find_qwen_names(const QwenConfig& config, const QwenFamily& family,
                                  const TensorCatalog& catalog);

Result<ModelSpec> build_qwen_spec(const ConfigJson& file, const QwenConfig& config,
                                  const QwenFamily& family, const TensorCatalog& catalog);

}  // namespace motley
