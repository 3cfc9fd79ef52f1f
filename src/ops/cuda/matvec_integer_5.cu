#include "ops/cuda/matvec_integer_launch.cuh"

namespace motley::cuda {

template void launch_integer<5>(CudaStream&, const MatvecCall&, const IntegerRows&, dim3, int,
                                bool);

}  // namespace motley::cuda
