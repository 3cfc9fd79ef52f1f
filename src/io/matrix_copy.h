// Rows of matrices of one format, put together in memory of their own.
//
// A matrix whose blocks of scales span rows keeps them when every source begins and ends with a
// whole block; otherwise the copy has a line of scales for each row, which says the same.
// Ownership: the caller's memory. Thread rule: pure functions.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "tensor/weight_matrix.h"

namespace motley {

// Whether one matrix can hold rows of both.
bool same_format(const WeightMatrix& a, const WeightMatrix& b);
// True when the rows of `b` follow those of `a` in every plane.
bool follows(const WeightMatrix& a, const WeightMatrix& b);

int64_t aligned_copy_bytes(int64_t bytes);
// What copy_matrix() writes: the planes, each from an aligned place.
int64_t copied_matrix_bytes(const std::vector<WeightMatrix>& sources);
// The rows of all sources, in order, at `out` (aligned).
WeightMatrix copy_matrix(const std::vector<WeightMatrix>& sources, std::byte* out);

}  // namespace motley
