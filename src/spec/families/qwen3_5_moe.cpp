// Qwen3.5-MoE: separate delta projections, every layer a mixture of experts.
// Source: transformers models/qwen3_5_moe.
#include "spec/families/families.h"
#include "spec/families/qwen_builder.h"

namespace motley {

Result<ModelSpec> build_qwen3_5_moe(const ConfigJson& config, const TensorCatalog& catalog) {
  const ConfigObject root = config.root();
  ConfigObject text = root;
  if (root.has("text_config")) {
    MOTLEY_ASSIGN_OR_RETURN(text, root.object("text_config"));
  }
  MOTLEY_ASSIGN_OR_RETURN(const QwenConfig fields, read_qwen_config(root, text));
  return build_qwen_spec(config, fields, QwenFamily{}, catalog);
}

}  // namespace motley
