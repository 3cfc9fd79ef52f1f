// clang-format off: the wrapper comes first.
#include "ops/cpu/simd_neon.h"
#include "ops/cpu/kernels_inl.h"
// clang-format on

namespace motley {

constexpr CpuKernels kCpuKernelsNeon = make_kernels();

}  // namespace motley
