// What the processor and the operating system together allow.
#pragma once

namespace motley {

struct CpuFeatures {
  bool avx2 = false;    // AVX2, FMA, F16C
  bool avx512 = false;  // F, BW, DQ, VL, VBMI, VNNI, BF16
  bool amx = false;     // TILE, INT8, BF16, and the kernel granted the tile state
  bool neon = false;    // Advanced SIMD with dot product and BF16
};

// Asks the kernel for the AMX tile state when the processor has it; threads started later inherit
// the permission, so call this before the thread pool starts.
CpuFeatures read_cpu_features();

}  // namespace motley
