// The tensors that a checkpoint holds, by name: what a family file may ask about, without I/O.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "numeric/dtype.h"

namespace motley {

struct CatalogEntry {
  DType dtype = DType::kF32;
  std::vector<int64_t> shape;
};

// How a checkpoint names and stores its tensors.
enum class CheckpointLayout : uint8_t { kHuggingFace, kMlx };

class TensorCatalog {
 public:
  virtual ~TensorCatalog() = default;
  virtual const CatalogEntry* find(std::string_view name) const = 0;
  // Set for a checkpoint that is yet to be written: the family then gives the names that this
  // layout has in released files, and find() answers for none of them.
  virtual std::optional<CheckpointLayout> planned_layout() const { return std::nullopt; }
  // Only for a planned checkpoint: whether it is to hold the draft layers.
  virtual bool planned_drafts() const { return false; }
  // Only for a planned checkpoint: experts are modules of their own, not stacks.
  virtual bool planned_separate_experts() const { return false; }
};

}  // namespace motley
