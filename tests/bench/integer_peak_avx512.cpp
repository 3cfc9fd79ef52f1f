#include <cstdint>

#include "tests/bench/machine_peaks.h"

namespace motley {

// In assembly: a compiler merges accumulators that it can see to be equal, or spills them.
#define MOTLEY_PRODUCT(n) "vpdpbusd %%zmm16, %%zmm17, %%zmm" #n "\n\t"

IntegerPeakRun integer_peak_avx512(int64_t iterations) {
  int64_t left = iterations;
  asm volatile(
      "1:\n\t" MOTLEY_PRODUCT(0) MOTLEY_PRODUCT(1) MOTLEY_PRODUCT(2) MOTLEY_PRODUCT(3)
          MOTLEY_PRODUCT(4) MOTLEY_PRODUCT(5) MOTLEY_PRODUCT(6) MOTLEY_PRODUCT(7) MOTLEY_PRODUCT(8)
              MOTLEY_PRODUCT(9) MOTLEY_PRODUCT(10) MOTLEY_PRODUCT(11) MOTLEY_PRODUCT(12)
                  MOTLEY_PRODUCT(13) MOTLEY_PRODUCT(14) MOTLEY_PRODUCT(15)
      "dec %0\n\t"
      "jnz 1b"
      : "+r"(left)
      :
      : "xmm0", "xmm1", "xmm2", "xmm3", "xmm4", "xmm5", "xmm6", "xmm7", "xmm8", "xmm9", "xmm10",
        "xmm11", "xmm12", "xmm13", "xmm14", "xmm15", "cc");
  return {static_cast<double>(iterations) * 16 * 128, 1};
}

}  // namespace motley
