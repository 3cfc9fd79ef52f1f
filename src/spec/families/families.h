// The families, one function each; family_registry.cpp lists them.
#pragma once

#include "base/status.h"
#include "spec/config_json.h"
#include "spec/model_spec.h"
#include "spec/tensor_catalog.h"

namespace motley {

// model_type qwen3_5_moe (text fields under text_config) and qwen3_5_moe_text (flat).
Result<ModelSpec> build_qwen3_5_moe(const ConfigJson& config, const TensorCatalog& catalog);

// model_type qwen3_next (flat).
Result<ModelSpec> build_qwen3_next(const ConfigJson& config, const TensorCatalog& catalog);

// model_type glm_moe_dsa (flat): GLM-5, 5.1, 5.2.
Result<ModelSpec> build_glm_moe_dsa(const ConfigJson& config, const TensorCatalog& catalog);

// model_type glm5_next (text fields under text_config) and glm5_next_text (flat): GLM-5.3-Flash.
Result<ModelSpec> build_glm5_next(const ConfigJson& config, const TensorCatalog& catalog);

}  // namespace motley
