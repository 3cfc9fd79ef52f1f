#include "ops/cuda/small_upload.h"

#include <cstring>

namespace motley::cuda {
namespace {

struct Words {
  uint4 value[kSmallUploadBytes / 16];
};

__global__ void upload_kernel(const __grid_constant__ Words words, uint4* target, int count) {
  const int i = static_cast<int>(threadIdx.x);
  if (i < count) target[i] = words.value[i];
  // A kernel that starts early behind the next one may read this without waiting.
  __threadfence();
}

}  // namespace

void launch_small_upload(cudaStream_t stream, std::byte* target, const std::byte* source,
                         size_t bytes) {
  Words words;
  std::memcpy(&words, source, bytes);
  upload_kernel<<<1, kSmallUploadBytes / 16, 0, stream>>>(words, reinterpret_cast<uint4*>(target),
                                                          static_cast<int>((bytes + 15) / 16));
}

}  // namespace motley::cuda
