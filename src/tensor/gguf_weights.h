// Quantised blocks of GGUF files as weight formats: one plane, `codes`, of whole blocks per row
// (numeric/gguf_block.h). Their values of WeightFormat lie behind the named ones, in the order of
// GgufType, so that a format alone says how a block is read.
#pragma once

#include <cstdint>
#include <optional>

#include "numeric/gguf_block.h"
#include "tensor/weight_matrix.h"

namespace motley {

inline constexpr uint8_t kFirstGgufFormat = 64;

constexpr WeightFormat weight_format(GgufType type) {
  return static_cast<WeightFormat>(kFirstGgufFormat + static_cast<uint8_t>(type));
}

// Set for the formats of GGUF blocks.
constexpr std::optional<GgufType> gguf_type(WeightFormat format) {
  const auto value = static_cast<uint8_t>(format);
  if (value < kFirstGgufFormat) return std::nullopt;
  return static_cast<GgufType>(value - kFirstGgufFormat);
}

}  // namespace motley
