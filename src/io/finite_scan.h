// Finds NaN and infinity in raw elements, eight bytes at a time.
#pragma once

#include <cstddef>
#include <span>

#include "numeric/dtype.h"

namespace motley {

// `dtype` is kBf16, kF16 or kF32; the span holds whole elements and needs no alignment.
bool all_finite(std::span<const std::byte> elements, DType dtype);

}  // namespace motley
