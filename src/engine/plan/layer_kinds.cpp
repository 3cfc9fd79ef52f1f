#include "engine/plan/layer_kinds.h"

#include <fmt/format.h>

#include <algorithm>

#include "engine/token_cost.h"

namespace motley {
namespace {

std::string name_of(const LayerSpec& layer) {
  const std::string mixer(mixer_name(layer.mixer));
  if (const auto* moe = std::get_if<MoeSpec>(&layer.feed_forward)) {
    return fmt::format("{}, {} experts", mixer, moe->experts);
  }
  return mixer + ", dense";
}

LayerKind describe(const ModelSpec& spec, const Placement& placement, const StateLayout& layout,
                   int index) {
  const LayerSpec& layer = spec.layers[static_cast<size_t>(index)];
  LayerKind kind{.name = name_of(layer), .layers = {index}};
  kind.signature = kind.name;
  if (const auto* attention = std::get_if<GatedAttentionSpec>(&layer.mixer)) {
    kind.signature += fmt::format("; {} heads, {} shared", attention->heads, attention->kv_heads);
  }
  if (const auto* latent = std::get_if<LatentAttentionSpec>(&layer.mixer)) {
    kind.signature +=
        fmt::format("; {} heads, keys {}", latent->heads, static_cast<int>(latent->keys));
  }
  if (const auto* moe = std::get_if<MoeSpec>(&layer.feed_forward)) {
    kind.experts = moe->experts;
    kind.experts_per_token = moe->experts_per_token;
    kind.signature += fmt::format("; {} a token", moe->experts_per_token);
  }
  visit_layer_tensors(layer, [&](TensorHandle handle, int matrices) {
    const TensorSpec& tensor = spec.tensor(handle);
    const PlacementRow& row = placement.rows[static_cast<size_t>(handle.index)];
    kind.signature += "; " + row.format;
    for (int i = 0; i < tensor.shape.rank(); ++i) {
      kind.signature += fmt::format(" {}", tensor.shape[i]);
    }
    if (tensor.role == TensorRole::kExperts) {
      kind.one_expert_bytes += row.file_bytes / tensor.shape[0];
      kind.signature += fmt::format(" of {}", matrices);
    } else {
      kind.dense_bytes += row.memory_bytes;
    }
  });
  for (const StateEntry& entry : layout.entries) {
    if (entry.layer != index) continue;
    kind.state_fixed_bytes += entry.fixed_bytes;
    kind.state_bytes_per_token += entry.bytes_per_token;
  }
  return kind;
}

}  // namespace

std::vector<LayerKind> layer_kinds(const ModelSpec& spec, const Placement& placement,
                                   const StateLayout& layout) {
  std::vector<LayerKind> kinds;
  for (int i = 0; i < static_cast<int>(spec.layers.size()); ++i) {
    LayerKind kind = describe(spec, placement, layout, i);
    auto found = std::find_if(kinds.begin(), kinds.end(), [&](const LayerKind& other) {
      return other.signature == kind.signature;
    });
    if (found == kinds.end() && kinds.size() == kMostKinds) {
      const bool has_cache = kind.state_bytes_per_token > 0;
      found = std::find_if(kinds.begin(), kinds.end(), [&](const LayerKind& other) {
        return (other.state_bytes_per_token > 0) == has_cache;
      });
      if (found == kinds.end()) found = kinds.begin();
    }
    if (found == kinds.end()) {
      kinds.push_back(std::move(kind));
    } else {
      found->layers.push_back(i);
    }
  }
  return kinds;
}

}  // namespace motley
