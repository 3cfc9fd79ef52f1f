// Launches the integer kernel; one .cu per few code widths keeps each compilation short.
#pragma once

#include "ops/cuda/launch.cuh"
#include "ops/cuda/matvec_integer.cuh"
#include "ops/cuda/matvec_integer.h"

namespace motley::cuda {

template <int kBits, int kTiles, int kGroupBlocks>
void launch_integer_group(CudaStream& stream, const MatvecCall& call, const IntegerRows& x,
                          dim3 grid) {
  using Launch = IntegerLaunch<kBits, kTiles>;
  constexpr int kBytes = Launch::kSharedBytes;
  const auto resident = static_cast<unsigned>(stream.multiprocessors() * Launch::kBlocks);
  if (grid.x > resident) grid.x = resident;  // each block takes several tiles
  auto* kernel = integer_kernel<kBits, kTiles, kGroupBlocks>;
  stream.note(cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, kBytes),
              "matvec");
  launch_dependent(stream, kernel, grid, 32 * kMatvecWarps, kBytes, "linear (rows)", call, x);
}

template <int kBits, int kTiles>
void launch_integer_tiles(CudaStream& stream, const MatvecCall& call, const IntegerRows& x,
                          dim3 grid) {
  if (call.group_size == 32) return launch_integer_group<kBits, kTiles, 1>(stream, call, x, grid);
  if (call.group_size == 64) return launch_integer_group<kBits, kTiles, 2>(stream, call, x, grid);
  launch_integer_group<kBits, kTiles, 4>(stream, call, x, grid);
}

template <int kBits>
void launch_integer(CudaStream& stream, const MatvecCall& call, const IntegerRows& x, dim3 grid,
                    int row_tiles) {
  if (row_tiles == 1) return launch_integer_tiles<kBits, 1>(stream, call, x, grid);
  launch_integer_tiles<kBits, 2>(stream, call, x, grid);
}

}  // namespace motley::cuda
