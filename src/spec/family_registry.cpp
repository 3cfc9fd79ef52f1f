#include "spec/family_registry.h"

#include <fmt/format.h>

#include <array>

#include "spec/families/families.h"

namespace motley {
namespace {

struct Family {
  std::string_view model_type;
  Result<ModelSpec> (*build)(const ConfigJson&, const TensorCatalog&);
};

constexpr std::array kFamilies = {
    Family{"qwen3_5_moe", build_qwen3_5_moe}, Family{"qwen3_5_moe_text", build_qwen3_5_moe},
    Family{"qwen3_next", build_qwen3_next},   Family{"glm_moe_dsa", build_glm_moe_dsa},
    Family{"glm5_next", build_glm5_next},     Family{"glm5_next_text", build_glm5_next},
};

// Holds nothing: what is to be written does not exist yet.
class PlannedCatalog final : public TensorCatalog {
 public:
  explicit PlannedCatalog(const PlannedCheckpoint& planned) : planned_(planned) {}
  const CatalogEntry* find(std::string_view) const override { return nullptr; }
  std::optional<CheckpointLayout> planned_layout() const override { return planned_.layout; }
  bool planned_drafts() const override { return planned_.drafts; }
  bool planned_separate_experts() const override { return planned_.separate_experts; }

 private:
  PlannedCheckpoint planned_;
};

Result<Family> find_family(const ConfigJson& config) {
  MOTLEY_ASSIGN_OR_RETURN(const std::string model_type, config.root().text("model_type"));
  for (const Family& family : kFamilies) {
    if (family.model_type == model_type) return family;
  }
  return config.root().unsupported_value(
      "model_type", fmt::format("unknown family {}; known are {}", json_excerpt(model_type),
                                fmt::join(known_model_types(), ", ")));
}

}  // namespace

std::vector<std::string_view> known_model_types() {
  std::vector<std::string_view> names;
  for (const Family& family : kFamilies) names.push_back(family.model_type);
  return names;
}

Status check_family(const ConfigJson& config) {
  return find_family(config).status();
}

Result<ModelSpec> build_model_spec(const ConfigJson& config, const TensorCatalog& catalog) {
  MOTLEY_ASSIGN_OR_RETURN(const Family family, find_family(config));
  MOTLEY_ASSIGN_OR_RETURN(ModelSpec spec, family.build(config, catalog));
  spec.family = family.model_type;
  return spec;
}

Result<ModelSpec> plan_model_spec(const ConfigJson& config, const PlannedCheckpoint& planned) {
  return build_model_spec(config, PlannedCatalog(planned));
}

}  // namespace motley
