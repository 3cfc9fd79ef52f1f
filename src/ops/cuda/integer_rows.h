// Activation rows as 16-bit fixed point, for the integer kernel of the fast profile's decode rows.
//
// Blocks of 128 elements share one scale, so a row loses at most 2^-15 of a block's largest
// element. An element is 256 * high + low with signed bytes; products with the codes and sums over
// a group are exact integers.
#pragma once

#include <cuda_runtime_api.h>

#include <cstdint>

#include "ops/cuda/cuda_stream.h"
#include "ops/cuda/prepared_rows.h"
#include "tensor/tensor_view.h"

namespace motley::cuda {

inline constexpr int kIntegerBlock = 128;

// Floats per row and block: the scale, then the sum of each group's fixed-point elements (as an
// exact integer), padded to one or two vector loads.
constexpr int integer_block_floats(int group_size) {
  return group_size == 32 ? 8 : group_size == 64 ? 4 : 2;
}

struct IntegerRows {
  // [rows][padded_cols / 8]: high bytes of elements 0 2 4 6 | 1 3 5 7, then the low bytes.
  const uint4* units = nullptr;
  // [rows][padded_cols / 128][integer_block_floats(group_size)]
  const float* blocks = nullptr;
  int64_t rows = 0;
  int64_t padded_cols = 0;  // K up to a multiple of 256, zeros beyond
};

// x [rows, cols], gated. The result is scratch of `stream`.
IntegerRows prepare_integer_rows(CudaStream& stream, const ConstTensorView& x, const RowGate& gate,
                                 int group_size);

}  // namespace motley::cuda
