// GGUF metadata of each architecture as a plan; gguf_model.cpp lists them.
#pragma once

#include "base/status.h"
#include "spec/gguf_metadata.h"
#include "spec/gguf_model.h"
#include "spec/tensor_catalog.h"

namespace motley {

// general.architecture qwen35moe: value heads are tiled, a draft layer may follow the trunk.
Result<GgufModelPlan> plan_qwen35moe_gguf(const GgufMetadata& metadata,
                                          const TensorCatalog& tensors);

// general.architecture qwen3next: value heads lie as in the Hugging Face layout, no draft layer.
Result<GgufModelPlan> plan_qwen3next_gguf(const GgufMetadata& metadata,
                                          const TensorCatalog& tensors);

}  // namespace motley
