// Products with weights in a format that no kernel takes: a few rows at a time become float32.
//
// The arithmetic is that of float32 weights (linear_kernels.h), so a row's bits depend on nothing
// but itself. Thread rule: concurrent calls need different scratch and outputs.
#pragma once

#include <cstdint>

#include "ops/cpu/activation_packs.h"

namespace motley {

// Rows of weights that are decoded at a time, and the scratch that they take.
constexpr int64_t kDecodedRows = 4;
inline int64_t decoded_rows_bytes(int64_t cols) {
  return (kDecodedRows * cols * 4 + 63) / 64 * 64;
}

// As multiply_rows(). `scratch`: decoded_rows_bytes(weights.cols), then the kernels' own.
void multiply_decoded_rows(const LinearKernels& kernels, const WeightMatrix& weights,
                           const ActivationPacks& x, const ProductOutput& output, bool fast,
                           std::byte* scratch);

}  // namespace motley
