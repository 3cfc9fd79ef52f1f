// Matrices whose columns lie in blocks in another order than they are used in (TiledHeads).
//
// Where the format's own blocks fit into one head, they are moved as they are. Otherwise the copy
// has another format that holds the same values: MLX affine of 4 or 5 bits with float32 scales for
// Q4_K and Q5_K, float32 for the rest.
// Ownership: the caller's memory. Thread rule: pure functions.
#pragma once

#include <cstddef>
#include <cstdint>

#include "spec/gguf_model.h"
#include "tensor/weight_matrix.h"

namespace motley {

// The format of the copy: rows, columns and strides; planes are without data. The columns of
// `source` are heads.count() * heads.width.
WeightMatrix untiled_format(const WeightMatrix& source, const TiledHeads& heads);
int64_t untiled_bytes(const WeightMatrix& source, const TiledHeads& heads);
// The matrix at `out` (aligned to 64, untiled_bytes long).
WeightMatrix untile_columns(const WeightMatrix& source, const TiledHeads& heads, std::byte* out);

}  // namespace motley
