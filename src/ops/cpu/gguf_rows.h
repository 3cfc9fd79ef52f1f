// Products with blocks of GGUF files by the kernels of affine weights.
//
// A few rows at a time become MLX affine groups of 32 with float32 scales and biases, which hold
// the same values (numeric/gguf_block.h): 4 bits for Q4_0 and Q4_K, 8 for Q8_0 and Q5_K. Q6_K has a
// scale for 16 values: it is the sum of two such matrices, one for the even groups of 16 and one
// for the odd ones, in which the other groups are zero. So a row's bits depend on nothing but
// itself, as for any affine weights (linear_kernels.h). Thread rule: concurrent calls need
// different scratch and outputs.
#pragma once

#include <cstdint>

#include "numeric/gguf_block.h"
#include "numeric/mlx_affine.h"
#include "ops/cpu/activation_packs.h"

namespace motley {

// The affine format that kernels see.
constexpr MlxAffineFormat gguf_affine_format(GgufType type) {
  const bool nibbles = type == GgufType::kQ4_0 || type == GgufType::kQ4K;
  return {.bits = nibbles ? 4 : 8, .group_size = 32};
}

// Rows of weights that are made affine at a time, and the scratch that they take.
constexpr int64_t kGgufRows = 16;
inline int64_t gguf_rows_bytes(int64_t cols) {
  return (kGgufRows * (cols + cols / 4) + 63) / 64 * 64;
}

// As multiply_rows(). `scratch`: gguf_rows_bytes(weights.cols), then the kernels' own.
void multiply_gguf_rows(const LinearKernels& kernels, const WeightMatrix& weights,
                        const ActivationPacks& x, const ProductOutput& output, std::byte* scratch);

}  // namespace motley
