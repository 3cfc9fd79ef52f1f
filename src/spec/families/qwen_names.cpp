// Which prefix and which layout a checkpoint uses; declared in qwen_builder.h.
#include <fmt/format.h>

#include <array>
#include <optional>

#include "spec/families/qwen_builder.h"

namespace motley {
namespace {

struct Naming {
  std::string_view prefix;
  std::string_view head;
  std::optional<CheckpointLayout> only;  // the layout in which this naming occurs
};
constexpr std::array kNamings = {
    Naming{"model.language_model.", "lm_head", CheckpointLayout::kHuggingFace},
    Naming{"language_model.model.", "language_model.lm_head", CheckpointLayout::kMlx},
    Naming{"model.", "lm_head", std::nullopt},
};

// The layout of one convolution, or an error that names it.
Result<CheckpointLayout> convolution_layout(const QwenConfig& config, const TensorCatalog& catalog,
                                            const std::string& name) {
  const CatalogEntry* entry = catalog.find(name);
  if (entry == nullptr) return not_found(fmt::format("tensor '{}' is missing", name));
  const int64_t channels = 2 * config.key_dim() + config.value_dim();
  const int64_t kernel = config.conv_kernel;
  if (entry->shape == std::vector<int64_t>{channels, 1, kernel})
    return CheckpointLayout::kHuggingFace;
  if (entry->shape == std::vector<int64_t>{channels, kernel, 1}) return CheckpointLayout::kMlx;
  return corrupt(fmt::format("tensor '{}': shape [{}], config.json needs [{}, 1, {}]", name,
                             fmt::join(entry->shape, ", "), channels, kernel));
}

// A checkpoint without a convolution: its naming occurs in one layout only, or only MLX stacks the
// experts under this name. The builder refuses layers whose experts disagree.
CheckpointLayout layout_of_names(const Naming& naming, const TensorCatalog& catalog) {
  if (naming.only) return *naming.only;
  const std::string stack =
      fmt::format("{}layers.0.mlp.switch_mlp.gate_proj.weight", naming.prefix);
  return catalog.find(stack) != nullptr ? CheckpointLayout::kMlx : CheckpointLayout::kHuggingFace;
}

std::string_view layout_name(CheckpointLayout layout) {
  return layout == CheckpointLayout::kMlx ? "MLX" : "Hugging Face";
}

// Qwen3-Next files name the text model alone; Qwen3.5 ones nest it beside a vision tower.
QwenNames released_names(const QwenFamily& family, CheckpointLayout layout) {
  const bool is_nested = family.projections == DeltaProjections::kSeparate;
  const Naming& naming = !is_nested                         ? kNamings[2]
                         : layout == CheckpointLayout::kMlx ? kNamings[1]
                                                            : kNamings[0];
  return {layout, std::string(naming.prefix), std::string(naming.head)};
}

}  // namespace

Result<QwenNames> find_qwen_names(const QwenConfig& config, const QwenFamily& family,
                                  const TensorCatalog& catalog) {
  if (const auto planned = catalog.planned_layout()) return released_names(family, *planned);
  const Naming* naming = nullptr;
  for (const Naming& candidate : kNamings) {
    if (naming == nullptr &&
        catalog.find(fmt::format("{}embed_tokens.weight", candidate.prefix)) != nullptr) {
      naming = &candidate;
    }
  }
  if (naming == nullptr) {
    return not_found(fmt::format("tensor '{}embed_tokens.weight' is missing", kNamings[0].prefix));
  }
  std::optional<CheckpointLayout> layout;
  for (size_t i = 0; i < config.is_full_attention.size(); ++i) {
    if (config.is_full_attention[i]) continue;
    const std::string name =
        fmt::format("{}layers.{}.linear_attn.conv1d.weight", naming->prefix, i);
    MOTLEY_ASSIGN_OR_RETURN(const CheckpointLayout found,
                            convolution_layout(config, catalog, name));
    const CheckpointLayout expected = layout.value_or(naming->only.value_or(found));
    if (found != expected) {
      return corrupt(fmt::format(
          "tensor '{}' has the {} layout in a checkpoint that is {} otherwise; a mix is refused",
          name, layout_name(found), layout_name(expected)));
    }
    layout = found;
  }
  return QwenNames{layout.value_or(layout_of_names(*naming, catalog)), std::string(naming->prefix),
                   std::string(naming->head)};
}

}  // namespace motley
