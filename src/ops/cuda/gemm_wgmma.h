// Host side of the Hopper tile kernel (gemm_wgmma.cuh), defined for every code width and 16.
#pragma once

#include "ops/cuda/cuda_stream.h"

namespace motley::cuda {

struct GemmCall;

inline constexpr int kWgmmaUnit = 64;  // rows of x: a tile has 1 to 4 units
inline constexpr int kWgmmaMaxUnits = 4;

// Every tile of `call` has `units` units; the sums of a row are the same in tiles of any size.
template <int kBits>
void launch_gemm_wgmma(CudaStream& stream, const GemmCall& call, int units);

}  // namespace motley::cuda
