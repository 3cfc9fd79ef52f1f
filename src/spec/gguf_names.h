// What the canonical tensors of a ModelSpec are called in GGUF files.
// Source: llama.cpp gguf-py/gguf/constants.py (TENSOR_NAMES).
// Thread rule: pure functions.
#pragma once

#include <cstdint>
#include <string_view>

#include "base/status.h"
#include "spec/model_spec.h"
#include "spec/tensor_catalog.h"

namespace motley {

// Gives the pieces of `tensor` the names that it has in a GGUF file of `layers` trunk layers;
// draft layers are behind those. Where files differ (projections fused or not), `tensors` decides.
// kUnsupported for a canonical tensor that GGUF files have no name for.
Status rename_for_gguf(int64_t layers, const TensorCatalog& tensors, TensorSpec* tensor);

// Which rows of a canonical tensor belong to the value heads of a delta layer: its last ones, a
// head's width each or one each.
enum class GgufHeadRows : uint8_t { kNone, kWholeHeads, kOnePerHead };
GgufHeadRows head_rows_of(std::string_view canonical_name);

}  // namespace motley
