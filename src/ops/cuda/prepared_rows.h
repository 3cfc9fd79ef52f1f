// Activation rows as the tensor cores take them: bfloat16 in the order of weight_units.cuh.
#pragma once

#include <cuda_bf16.h>

#include <cstdint>

#include "ops/cuda/cuda_stream.h"
#include "ops/swiglu.h"
#include "tensor/tensor_view.h"

namespace motley::cuda {

// Within each 32 elements along K, 16-byte chunk c holds
//   kUnitMajor   unit c: elements 8c + (0 4 1 5 2 6 3 7); one lane's operand of the row kernel
//   kChunkMajor  pair c of units 0..3: elements 8t + c, 8t + c + 4; an ldmatrix row
//   kTileMajor   as kChunkMajor, but [padded_cols / 64][rows][64] with the eight chunks of a row
//                swizzled by row % 8: any run of rows from a multiple of 8 on is one piece of
//                memory and an operand of wgmma. 256 rows may be read past the last one.
enum class RowOrder { kUnitMajor, kChunkMajor, kTileMajor };

struct PreparedRows {
  const __nv_bfloat16* pieces = nullptr;  // [pieces][rows][padded_cols]
  int64_t piece_stride = 0;               // elements
  const float* sums = nullptr;  // kUnitMajor: [rows][padded_cols / 32], of the rounded elements
  int64_t rows = 0;
  int64_t padded_cols = 0;  // K up to a multiple of kColumnPad, zeros beyond
};

// Rows to multiply by silu(gate) on the way: x becomes the gated unit of ops/swiglu.h.
struct RowGate {
  ConstTensorView rows;  // empty: x as it is
  SwigluParams params;
};

inline constexpr int64_t kColumnPad = 256;
inline constexpr int64_t kTileReadAhead = 256;  // rows

// x: [rows, cols]. One piece rounds to bfloat16; three hold every bit of a float32. The result is
// scratch of `stream`.
PreparedRows prepare_rows(CudaStream& stream, const ConstTensorView& x, const RowGate& gate,
                          int pieces, RowOrder order);

// Row i is row ids[i] of x; one piece, no sums. ids: device memory.
PreparedRows gather_rows(CudaStream& stream, const ConstTensorView& x, const int32_t* ids,
                         int64_t rows, RowOrder order);

}  // namespace motley::cuda
