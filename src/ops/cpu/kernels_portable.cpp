// clang-format off: the wrapper comes first.
#include "ops/cpu/simd_portable.h"
#include "ops/cpu/kernels_inl.h"
// clang-format on

namespace motley {

constexpr CpuKernels kCpuKernelsPortable = make_kernels();

}  // namespace motley
