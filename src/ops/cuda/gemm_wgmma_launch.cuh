// Launches the Hopper tile kernel; several .cu files share the code widths to compile side by side.
#pragma once

#include <algorithm>

#include "ops/cuda/gemm_wgmma.cuh"

namespace motley::cuda {

template <int kBits, int kUnits>
void launch_gemm_units(CudaStream& stream, const GemmCall& call) {
  constexpr int kBytes = WgmmaStage<kBits, kUnits>::kSharedBytes;
  auto* kernel = gemm_wgmma_kernel<kBits, kUnits>;
  stream.note(cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, kBytes),
              "gemm");
  const int tiles = call.x_tiles * call.w_tiles;
  const int blocks = std::min(tiles, stream.multiprocessors());
  kernel<<<static_cast<unsigned>(blocks), kWgmmaThreads, kBytes, stream.handle()>>>(call);
}

template <int kBits>
void launch_gemm_wgmma(CudaStream& stream, const GemmCall& call, int units) {
  if constexpr (wgmma_has_all_tiles(kBits)) {
    if (units == 3) return launch_gemm_units<kBits, 3>(stream, call);
    if (units == 5) return launch_gemm_units<kBits, 5>(stream, call);
  }
  switch (units) {
    case 2:
      return launch_gemm_units<kBits, 2>(stream, call);
    case 4:
      return launch_gemm_units<kBits, 4>(stream, call);
    case 6:
      return launch_gemm_units<kBits, 6>(stream, call);
    default:
      launch_gemm_units<kBits, kWgmmaMaxUnits>(stream, call);
  }
}

}  // namespace motley::cuda
