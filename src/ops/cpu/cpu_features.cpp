#include "ops/cpu/cpu_features.h"

#include <cstdint>

#if defined(__x86_64__)
#include <cpuid.h>
#include <sys/syscall.h>
#include <unistd.h>
#elif defined(__aarch64__)
#include <asm/hwcap.h>
#include <sys/auxv.h>
#endif

namespace motley {

#if defined(__x86_64__)
namespace {

struct Leaf {
  uint32_t eax = 0, ebx = 0, ecx = 0, edx = 0;
};

Leaf cpuid(uint32_t leaf, uint32_t subleaf) {
  Leaf result;
  if (__get_cpuid_count(leaf, subleaf, &result.eax, &result.ebx, &result.ecx, &result.edx) == 0) {
    return {};
  }
  return result;
}

bool has(uint32_t word, int bit) {
  return ((word >> bit) & 1u) != 0;
}

// Register states that the operating system saves on a context switch (XCR0).
uint64_t enabled_states() {
  uint32_t low = 0;
  uint32_t high = 0;
  asm volatile("xgetbv" : "=a"(low), "=d"(high) : "c"(0));
  return (uint64_t{high} << 32) | low;
}

bool request_tile_state() {
  constexpr long kRequestPermission = 0x1023;  // ARCH_REQ_XCOMP_PERM
  constexpr long kTileData = 18;               // state component number
  return syscall(SYS_arch_prctl, kRequestPermission, kTileData) == 0;
}

}  // namespace

CpuFeatures read_cpu_features() {
  constexpr uint64_t kAvxStates = 0x6;      // XMM, YMM
  constexpr uint64_t kAvx512States = 0xE6;  // and opmask, ZMM
  constexpr uint64_t kTileStates = 0x60000;
  CpuFeatures features;
  const Leaf basic = cpuid(1, 0);
  const bool has_xgetbv = has(basic.ecx, 27);
  if (!has_xgetbv) return features;
  const uint64_t states = enabled_states();
  const Leaf extended = cpuid(7, 0);
  const Leaf extended1 = cpuid(7, 1);
  features.avx2 = (states & kAvxStates) == kAvxStates && has(basic.ecx, 12) && has(basic.ecx, 29) &&
                  has(extended.ebx, 5);
  features.avx512 = features.avx2 && (states & kAvx512States) == kAvx512States &&
                    has(extended.ebx, 16) && has(extended.ebx, 17) && has(extended.ebx, 30) &&
                    has(extended.ebx, 31) && has(extended.ecx, 1) && has(extended.ecx, 11) &&
                    has(extended1.eax, 5);
  features.amx = features.avx512 && (states & kTileStates) == kTileStates &&
                 has(extended.edx, 22) && has(extended.edx, 24) && has(extended.edx, 25) &&
                 request_tile_state();
  return features;
}

#elif defined(__aarch64__)

CpuFeatures read_cpu_features() {
  CpuFeatures features;
  features.neon =
      (getauxval(AT_HWCAP) & HWCAP_ASIMDDP) != 0 && (getauxval(AT_HWCAP2) & HWCAP2_BF16) != 0;
  return features;
}

#else

CpuFeatures read_cpu_features() {
  return {};
}

#endif

}  // namespace motley
