// GLM-5, 5.1, 5.2: latent attention over keys that an indexer chooses, indexers shared by layers.
// Source: transformers models/glm_moe_dsa.
#include "spec/families/families.h"
#include "spec/families/glm_builder.h"

namespace motley {
namespace {

// The reference builds these two norms with the default of their constructor; rms_norm_eps, ten
// times as large in released files, flips choices of keys.
constexpr float kLatentEpsilon = 1e-6f;

}  // namespace

Result<ModelSpec> build_glm_moe_dsa(const ConfigJson& file, const TensorCatalog& catalog) {
  const ConfigObject root = file.root();
  MOTLEY_ASSIGN_OR_RETURN(GlmConfig config, read_glm_config(root, root, /*with_rotation=*/true));
  MOTLEY_RETURN_IF_ERROR(read_indexer_kinds(root, &config));
  if (config.index_head_dim < config.rope_dim) {
    return root.error("index_head_dim", "is less than qk_rope_head_dim, which rotates in it");
  }
  if (catalog.planned_layout() == CheckpointLayout::kMlx) {
    return root.unsupported_value("model_type", "cannot be written in the MLX layout");
  }
  ModelSpec spec;
  GlmBuilder builder(config, catalog, "model.", kLatentEpsilon, &spec);
  builder.add_ends();
  for (int i = 0; i < config.layers(); ++i) {
    const auto index = static_cast<size_t>(i);
    const GlmPlace place = builder.place(i);
    const KeySource keys = config.has_own_indexer[index] ? KeySource::kOwn : KeySource::kShared;
    MOTLEY_ASSIGN_OR_RETURN(LatentAttentionSpec latent, builder.latent_attention(place, keys));
    spec.layers.push_back(builder.layer(place, std::move(latent), config.is_dense[index]));
  }
  MOTLEY_RETURN_IF_ERROR(builder.add_draft());
  return spec;
}

}  // namespace motley
