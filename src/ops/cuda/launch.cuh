// Launching a kernel that may start while the one before it on the stream still runs.
#pragma once

#include "ops/cuda/cuda_stream.h"

namespace motley::cuda {

// The kernel must call wait_for_previous_kernel before it touches anything that an earlier kernel
// wrote or reads anything it overwrites. An ordinary launch before compute capability 9.0.
template <typename... Params, typename... Args>
void launch_dependent(CudaStream& stream, void (*kernel)(Params...), dim3 grid, unsigned threads,
                      size_t shared_bytes, const char* op, const Args&... args) {
  cudaLaunchAttribute attribute{};
  attribute.id = cudaLaunchAttributeProgrammaticStreamSerialization;
  attribute.val.programmaticStreamSerializationAllowed = 1;
  cudaLaunchConfig_t config{};
  config.gridDim = grid;
  config.blockDim = dim3(threads);
  config.dynamicSmemBytes = shared_bytes;
  config.stream = stream.handle();
  config.attrs = &attribute;
  config.numAttrs = stream.compute_capability() >= 90 ? 1 : 0;
  stream.note(cudaLaunchKernelEx(&config, kernel, args...), op);
}

}  // namespace motley::cuda
