// Encoding rows as block-scaled floats in the byte layout of a checkpoint.
// Source of the scales: numeric/block_float.h. Thread rule: pure functions.
#pragma once

#include <cstdint>
#include <span>

#include "io/convert/packed_rows.h"
#include "numeric/block_float.h"

namespace motley {

// Encodes rows that begin with a whole block; values: rows of `cols` elements. `tensor_scale` is
// what a reader multiplies by (1: the format has none). Writes out.values and out.scales.
void store_block_rows(const BlockFloatFormat& format, float tensor_scale,
                      std::span<const float> values, int64_t cols, const PackedRows& out);

}  // namespace motley
