#include "spec/gguf_model.h"

#include <fmt/format.h>

#include <array>

#include "spec/families/gguf_plans.h"
#include "spec/family_registry.h"
#include "spec/gguf_names.h"

namespace motley {
namespace {

struct Architecture {
  std::string_view name;
  Result<GgufModelPlan> (*plan)(const GgufMetadata&, const TensorCatalog&);
};

constexpr std::array kArchitectures = {
    Architecture{"qwen35moe", plan_qwen35moe_gguf},
    Architecture{"qwen3next", plan_qwen3next_gguf},
};

Result<Architecture> find_architecture(const GgufMetadata& metadata) {
  MOTLEY_ASSIGN_OR_RETURN(const std::string_view name, metadata.text("general.architecture"));
  for (const Architecture& architecture : kArchitectures) {
    if (architecture.name == name) return architecture;
  }
  return unsupported(fmt::format("general.architecture {} is not supported; known are {}",
                                 json_excerpt(name), fmt::join(known_gguf_architectures(), ", ")));
}

// Rows [first, first + heads) of `piece`, head by head, in the order of the model.
void add_heads(const TensorPiece& piece, int64_t first, const TiledHeads& heads,
               std::vector<TensorPiece>* out) {
  for (int64_t head = 0; head < heads.count(); ++head) {
    TensorPiece one = piece;
    one.row_begin = first + heads.stored(head) * heads.width;
    one.row_count = heads.width;
    out->push_back(std::move(one));
  }
}

// The pieces of a tensor whose last rows belong to value heads.
void untile_rows(const TiledHeads& heads, TensorSpec* tensor) {
  const TensorPiece whole = tensor->pieces.front();
  const int64_t before = whole.row_count - heads.count() * heads.width;
  tensor->pieces.clear();
  if (before > 0) {
    TensorPiece first = whole;
    first.row_count = before;
    tensor->pieces.push_back(std::move(first));
  }
  add_heads(whole, before, heads, &tensor->pieces);
}

}  // namespace

std::vector<std::string_view> known_gguf_architectures() {
  std::vector<std::string_view> names;
  for (const Architecture& architecture : kArchitectures) names.push_back(architecture.name);
  return names;
}

Status check_gguf_architecture(const GgufMetadata& metadata) {
  return find_architecture(metadata).status();
}

Result<GgufModelPlan> plan_gguf_model(const GgufMetadata& metadata, const TensorCatalog& tensors) {
  MOTLEY_ASSIGN_OR_RETURN(const Architecture architecture, find_architecture(metadata));
  return architecture.plan(metadata, tensors);
}

Result<ModelSpec> build_gguf_spec(const ConfigJson& config, const GgufModelPlan& plan,
                                  const TensorCatalog& tensors) {
  MOTLEY_ASSIGN_OR_RETURN(ModelSpec spec, plan_model_spec(config, {.layout = CheckpointLayout::kMlx,
                                                                   .drafts = plan.drafts}));
  spec.skipped.clear();
  for (TensorSpec& tensor : spec.tensors) {
    MOTLEY_RETURN_IF_ERROR(rename_for_gguf(plan.layers, tensors, &tensor));
    if (!plan.heads.is_needed()) continue;
    const GgufHeadRows rows = head_rows_of(tensor.name);
    if (rows == GgufHeadRows::kNone) continue;
    TiledHeads heads = plan.heads;
    if (rows == GgufHeadRows::kOnePerHead) heads.width = 1;
    untile_rows(heads, &tensor);
  }
  return spec;
}

}  // namespace motley
