// Few bytes to the device as the arguments of a kernel: between kernels that takes less than half
// the time of a copy from pinned memory.
#pragma once

#include <cuda_runtime_api.h>

#include <cstddef>

namespace motley::cuda {

inline constexpr size_t kSmallUploadBytes = 3840;  // arguments of a kernel are at most 4 KiB

// bytes: at most kSmallUploadBytes. Writes whole units of 16 bytes at `target`. The caller checks
// for launch errors.
void launch_small_upload(cudaStream_t stream, std::byte* target, const std::byte* source,
                         size_t bytes);

}  // namespace motley::cuda
