// Launches the integer kernel; one .cu per code width keeps each compilation short.
#pragma once

#include "ops/cuda/launch.cuh"
#include "ops/cuda/matvec_integer.cuh"
#include "ops/cuda/matvec_integer.h"

namespace motley::cuda {

template <int kBits, bool kLarge, int kTiles, int kGroupBlocks>
void launch_integer_group(CudaStream& stream, const MatvecCall& call, const IntegerRows& x,
                          dim3 grid) {
  using Launch = IntegerLaunch<kBits, kLarge, kTiles, kGroupBlocks>;
  constexpr int kBytes = Launch::kSharedBytes;
  const auto resident = static_cast<unsigned>(stream.multiprocessors() * Launch::kBlocks);
  if (grid.x > resident) grid.x = resident;  // each block takes several tiles
  auto* kernel = integer_kernel<kBits, kLarge, kTiles, kGroupBlocks>;
  stream.note(cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, kBytes),
              "matvec");
  launch_dependent(stream, kernel, grid, Launch::kThreads, kBytes, "linear (rows)", call, x);
}

template <int kBits, bool kLarge, int kTiles>
void launch_integer_tiles(CudaStream& stream, const MatvecCall& call, const IntegerRows& x,
                          dim3 grid) {
  switch (call.group_size) {
    case 32:
      return launch_integer_group<kBits, kLarge, kTiles, 1>(stream, call, x, grid);
    case 64:
      return launch_integer_group<kBits, kLarge, kTiles, 2>(stream, call, x, grid);
    default:
      launch_integer_group<kBits, kLarge, kTiles, 4>(stream, call, x, grid);
  }
}

template <int kBits>
void launch_integer(CudaStream& stream, const MatvecCall& call, const IntegerRows& x, dim3 grid,
                    int row_tiles, bool large) {
  if constexpr (integer_tile_rows(kBits, true) != integer_tile_rows(kBits, false)) {
    if (large && row_tiles == 1) {
      return launch_integer_tiles<kBits, true, 1>(stream, call, x, grid);
    }
    if (large) return launch_integer_tiles<kBits, true, 2>(stream, call, x, grid);
  }
  if (row_tiles == 1) return launch_integer_tiles<kBits, false, 1>(stream, call, x, grid);
  launch_integer_tiles<kBits, false, 2>(stream, call, x, grid);
}

}  // namespace motley::cuda
