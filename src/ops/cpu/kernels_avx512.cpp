// clang-format off: the wrapper comes first.
#include "ops/cpu/simd_avx512.h"
#include "ops/cpu/kernels_inl.h"
// clang-format on

namespace motley {

constexpr CpuKernels kCpuKernelsAvx512 = make_kernels();

}  // namespace motley
