// Loops that do nothing but multiply and add, to learn what the processor's units can reach.
//
// Thread rule: kernels have no state. Files of one instruction set include only this header and
// intrinsics.
#pragma once

#include <cstdint>

namespace motley {

struct PeakKernel {
  const char* instruction = nullptr;  // "vpdpbusd zmm"
  const char* numbers = nullptr;      // of the factors: "float32", "int8", "bfloat16"
  int64_t multiply_adds = 0;          // of one round
  // Runs that many rounds. The result only keeps the compiler from dropping the work.
  float (*run)(int64_t rounds) = nullptr;
};

// Up to this many kernels for an instruction set; unused entries have no `run`.
inline constexpr int kMaxPeakKernels = 3;
struct PeakKernels {
  PeakKernel kernels[kMaxPeakKernels];
};

PeakKernels peak_kernels_portable();
PeakKernels peak_kernels_avx2();
PeakKernels peak_kernels_avx512();
PeakKernels peak_kernels_amx();
PeakKernels peak_kernels_neon();

}  // namespace motley
