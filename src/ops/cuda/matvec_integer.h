// Host side of the integer kernel (matvec_integer.cuh), defined for code widths 2, 3, 4, 5, 6, 8.
#pragma once

#include "ops/cuda/integer_rows.h"

namespace motley::cuda {

struct MatvecCall;

// Rows of W per block. Wider codes have no room in shared memory for large tiles, and narrower ones
// are too rare for another kernel.
constexpr int integer_tile_rows(int bits, bool large) {
  return large && bits == 4 ? 64 : 32;
}

// grid.y counts blocks of 8 * row_tiles rows of x; row_tiles is 1 or 2.
template <int kBits>
void launch_integer(CudaStream& stream, const MatvecCall& call, const IntegerRows& x, dim3 grid,
                    int row_tiles, bool large);

}  // namespace motley::cuda
