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

class TensorCatalog {
 public:
  virtual ~TensorCatalog() = default;
  virtual const CatalogEntry* find(std::string_view name) const = 0;
};

}  // namespace motley
