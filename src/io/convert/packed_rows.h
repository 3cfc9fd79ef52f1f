// Storing values and quantised rows in the byte layout of a checkpoint.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "numeric/dtype.h"
#include "numeric/mlx_affine.h"

namespace motley {

// Destination of some consecutive rows of a module. scales and biases are null when the module is
// not quantised.
struct PackedRows {
  std::byte* values = nullptr;
  std::byte* scales = nullptr;
  std::byte* biases = nullptr;
};

// One BF16 or F32 element.
void store_value(float value, DType dtype, std::byte* out, int64_t index);

// Quantises one row; `codes` is scratch of the row's length.
void store_quantized_row(const MlxAffineFormat& format, DType scale_dtype,
                         const std::vector<float>& row, std::vector<uint8_t>* codes,
                         const PackedRows& out);

}  // namespace motley
