#include "ops/cuda/gemm_wgmma_launch.cuh"

namespace motley::cuda {

template void launch_gemm_wgmma<4>(CudaStream&, const GemmCall&, int);

}  // namespace motley::cuda
