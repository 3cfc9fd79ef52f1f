// The distinct layers of a model: layers of one kind have the same maths, shapes and formats, so
// that timing one of them tells about all.
// Units: bytes of one layer. Thread rule: pure functions and values.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "spec/model_spec.h"
#include "spec/state_layout.h"
#include "topology/placement.h"

namespace motley {

struct LayerKind {
  std::string name;              // "gated delta, 256 experts"
  std::string signature;         // equal for layers that are alike
  std::vector<int> layers;       // by number, ascending; not empty
  int64_t dense_bytes = 0;       // weights that every token meets
  int64_t one_expert_bytes = 0;  // 0: no routed experts
  int experts = 0;
  int experts_per_token = 0;
  int64_t state_fixed_bytes = 0;
  int64_t state_bytes_per_token = 0;  // of cache; 0: the layer keeps none

  int count() const { return static_cast<int>(layers.size()); }
  int64_t experts_bytes() const { return int64_t{experts} * one_expert_bytes; }
};

// In order of their first layer, draft layers left out. More than kMostKinds are not told apart: a
// further layer counts as the first kind that has a cache as it has, or has none.
constexpr size_t kMostKinds = 6;
std::vector<LayerKind> layer_kinds(const ModelSpec& spec, const Placement& placement,
                                   const StateLayout& layout);

}  // namespace motley
