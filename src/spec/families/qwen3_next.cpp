// Qwen3-Next: fused delta projections grouped by key head, some layers may be dense.
// Source: transformers models/qwen3_next.
#include <algorithm>

#include "spec/families/families.h"
#include "spec/families/qwen_builder.h"

namespace motley {

Result<ModelSpec> build_qwen3_next(const ConfigJson& config, const TensorCatalog& catalog) {
  const ConfigObject root = config.root();
  MOTLEY_ASSIGN_OR_RETURN(const QwenConfig fields, read_qwen_config(root, root));
  const auto layers = static_cast<int64_t>(fields.is_full_attention.size());
  QwenFamily family{.projections = DeltaProjections::kGrouped};
  MOTLEY_ASSIGN_OR_RETURN(family.normalise_experts, root.boolean_or("norm_topk_prob", true));
  MOTLEY_ASSIGN_OR_RETURN(const std::vector<int64_t> dense_layers,
                          root.integers("mlp_only_layers", 0, layers - 1));
  MOTLEY_ASSIGN_OR_RETURN(const int64_t sparse_step,
                          root.integer_or("decoder_sparse_step", 1, 1, layers));
  for (int64_t i = 0; i < layers; ++i) {
    const bool listed =
        std::find(dense_layers.begin(), dense_layers.end(), i) != dense_layers.end();
    family.is_dense.push_back(listed || (i + 1) % sparse_step != 0);
  }
  if (std::find(family.is_dense.begin(), family.is_dense.end(), true) != family.is_dense.end()) {
    MOTLEY_ASSIGN_OR_RETURN(family.dense_intermediate_size,
                            root.integer("intermediate_size", 1, 1 << 18));
  }
  return build_qwen_spec(config, fields, family, catalog);
}

}  // namespace motley
