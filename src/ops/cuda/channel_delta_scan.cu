#include "ops/cuda/delta_scan.cuh"

namespace motley::cuda {

template void launch_delta_scan<true>(CudaStream&, const DeltaCall&, const DeltaBlocks&, unsigned);

}  // namespace motley::cuda
