// Host side of the Hopper tile kernel (gemm_wgmma.cuh), defined for every code width and 16.
#pragma once

#include "ops/cuda/cuda_stream.h"

namespace motley::cuda {

struct GemmCall;

inline constexpr int kWgmmaUnit = 32;  // rows of x: a tile has 2, 3, 4, 5, 6 or 8 units
inline constexpr int kWgmmaMaxUnits = 8;

// The usual widths have all tiles; the others those of 2, 4, 6 and 8 units, for the compiler's
// time.
constexpr bool wgmma_has_all_tiles(int bits) {
  return bits == 4 || bits == 8 || bits == 16;
}

// The smallest tile of a code width that holds `units` units, or the largest there is.
constexpr int wgmma_tile_units(int bits, int64_t units) {
  if (units > 6) return kWgmmaMaxUnits;
  const int least = units < 2 ? 2 : static_cast<int>(units);
  return wgmma_has_all_tiles(bits) ? least : (least + 1) / 2 * 2;
}

// Every tile of `call` has `units` units; the sums of a row are the same in tiles of any size.
template <int kBits>
void launch_gemm_wgmma(CudaStream& stream, const GemmCall& call, int units);

}  // namespace motley::cuda
