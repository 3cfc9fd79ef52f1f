// Hopper's warpgroup products, bulk copies and the barriers that both report to (sm_90a).
#pragma once

#include <cstdint>

#include "ops/cuda/tensor_core.cuh"

namespace motley::cuda {

// The operands of one product, 16 accumulators at a time.
#define MOTLEY_WGMMA_NAMES_32                                                                  \
  "%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, %16, %17, %18, %19, " \
  "%20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31"
#define MOTLEY_WGMMA_NAMES_48 \
  MOTLEY_WGMMA_NAMES_32       \
  ", %32, %33, %34, %35, %36, %37, %38, %39, %40, %41, %42, %43, %44, %45, %46, %47"
#define MOTLEY_WGMMA_NAMES_64 \
  MOTLEY_WGMMA_NAMES_48       \
  ", %48, %49, %50, %51, %52, %53, %54, %55, %56, %57, %58, %59, %60, %61, %62, %63"
#define MOTLEY_WGMMA_NAMES_80 \
  MOTLEY_WGMMA_NAMES_64       \
  ", %64, %65, %66, %67, %68, %69, %70, %71, %72, %73, %74, %75, %76, %77, %78, %79"
#define MOTLEY_WGMMA_NAMES_96 \
  MOTLEY_WGMMA_NAMES_80       \
  ", %80, %81, %82, %83, %84, %85, %86, %87, %88, %89, %90, %91, %92, %93, %94, %95"
#define MOTLEY_WGMMA_NAMES_128                                                             \
  MOTLEY_WGMMA_NAMES_96                                                                    \
  ", %96, %97, %98, %99, %100, %101, %102, %103, %104, %105, %106, %107, %108, %109, %110" \
  ", %111, %112, %113, %114, %115, %116, %117, %118, %119, %120, %121, %122, %123, %124"   \
  ", %125, %126, %127"
#define MOTLEY_WGMMA_SUMS_16(i)                                                               \
  "+f"(c[i]), "+f"(c[i + 1]), "+f"(c[i + 2]), "+f"(c[i + 3]), "+f"(c[i + 4]), "+f"(c[i + 5]), \
      "+f"(c[i + 6]), "+f"(c[i + 7]), "+f"(c[i + 8]), "+f"(c[i + 9]), "+f"(c[i + 10]),        \
      "+f"(c[i + 11]), "+f"(c[i + 12]), "+f"(c[i + 13]), "+f"(c[i + 14]), "+f"(c[i + 15])
#define MOTLEY_WGMMA_SUMS_32 MOTLEY_WGMMA_SUMS_16(0), MOTLEY_WGMMA_SUMS_16(16)
#define MOTLEY_WGMMA_SUMS_48 MOTLEY_WGMMA_SUMS_32, MOTLEY_WGMMA_SUMS_16(32)
#define MOTLEY_WGMMA_SUMS_64 MOTLEY_WGMMA_SUMS_48, MOTLEY_WGMMA_SUMS_16(48)
#define MOTLEY_WGMMA_SUMS_80 MOTLEY_WGMMA_SUMS_64, MOTLEY_WGMMA_SUMS_16(64)
#define MOTLEY_WGMMA_SUMS_96 MOTLEY_WGMMA_SUMS_80, MOTLEY_WGMMA_SUMS_16(80)
#define MOTLEY_WGMMA_SUMS_128 \
  MOTLEY_WGMMA_SUMS_96, MOTLEY_WGMMA_SUMS_16(96), MOTLEY_WGMMA_SUMS_16(112)

// c[64 x columns] += A[64 x 16] B[16 x columns], columns being twice the accumulators: A in
// registers (fragments as mma.m16n8k16, one per warp), B in shared memory with the 128-byte
// swizzle, K-major (wgmma_descriptor) or, with kColumnMajor, stored [16][columns]
// (values_descriptor). c[4 j + i] is accumulator i of column tile j. Without `accumulate` c is
// overwritten.
#define MOTLEY_WGMMA(sums, columns, a0, a1, a2, a3, b_at, accumulate_at, major_at)               \
  template <bool kColumnMajor>                                                                   \
  __device__ inline void wgmma(float(&c)[sums], const uint32_t* a, uint64_t b, int accumulate) { \
    asm volatile("{ .reg .pred accumulate; setp.ne.b32 accumulate, " accumulate_at               \
                 ", 0; wgmma.mma_async.sync.aligned.m64n" columns                                \
                 "k16.f32.bf16.bf16 {" MOTLEY_WGMMA_NAMES_##sums                                 \
                 "}, {" a0 ", " a1 ", " a2 ", " a3 "}, " b_at ", accumulate, 1, 1, " major_at    \
                 "; }"                                                                           \
                 : MOTLEY_WGMMA_SUMS_##sums                                                      \
                 : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b), "r"(accumulate),          \
                   "n"(kColumnMajor ? 1 : 0));                                                   \
  }
MOTLEY_WGMMA(32, "64", "%32", "%33", "%34", "%35", "%36", "%37", "%38")
MOTLEY_WGMMA(48, "96", "%48", "%49", "%50", "%51", "%52", "%53", "%54")
MOTLEY_WGMMA(64, "128", "%64", "%65", "%66", "%67", "%68", "%69", "%70")
MOTLEY_WGMMA(80, "160", "%80", "%81", "%82", "%83", "%84", "%85", "%86")
MOTLEY_WGMMA(96, "192", "%96", "%97", "%98", "%99", "%100", "%101", "%102")
MOTLEY_WGMMA(128, "256", "%128", "%129", "%130", "%131", "%132", "%133", "%134")

// c[64 x 64] (+)= A[64 x 16] B[16 x 64], both K-major in shared memory with the 128-byte swizzle.
__device__ inline void wgmma_shared(float (&c)[32], uint64_t a, uint64_t b, int accumulate) {
  asm volatile(
      "{ .reg .pred accumulate; setp.ne.b32 accumulate, %34, 0; "
      "wgmma.mma_async.sync.aligned.m64n64k16.f32.bf16.bf16 {" MOTLEY_WGMMA_NAMES_32
      "}, %32, %33, accumulate, 1, 1, 0, 0; }"
      : MOTLEY_WGMMA_SUMS_32
      : "l"(a), "l"(b), "r"(accumulate));
}

__device__ inline void wgmma_fence() {
  asm volatile("wgmma.fence.sync.aligned;" ::: "memory");
}
__device__ inline void wgmma_commit() {
  asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory");
}
template <int kPending>
__device__ inline void wgmma_wait() {
  asm volatile("wgmma.wait_group.sync.aligned %0;" ::"n"(kPending) : "memory");
}

// Descriptor of a K-major operand with the 128-byte swizzle: groups of 8 rows 1,024 bytes apart.
__device__ inline uint64_t wgmma_descriptor(uint32_t address) {
  return (uint64_t{(address & 0x3FFFFu) >> 4}) | (uint64_t{1} << 16) | (uint64_t{64} << 32) |
         (uint64_t{1} << 62);
}

// Descriptor of an operand stored [k][columns] in pieces of 64 columns, `piece_bytes` apart, of
// rows of 128 bytes with the 128-byte swizzle: groups of 8 rows 1,024 bytes apart.
__device__ inline uint64_t values_descriptor(uint32_t address, uint32_t piece_bytes) {
  return (uint64_t{(address & 0x3FFFFu) >> 4}) | (uint64_t{piece_bytes >> 4} << 16) |
         (uint64_t{64} << 32) | (uint64_t{1} << 62);
}

// Makes this thread's writes to shared memory visible to wgmma, before a barrier.
__device__ inline void fence_for_wgmma() {
  asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
}

// Moves registers between warpgroups: a kernel starts with an equal share for each.
template <int kRegisters>
__device__ inline void give_registers() {
  asm volatile("setmaxnreg.dec.sync.aligned.u32 %0;" ::"n"(kRegisters));
}
template <int kRegisters>
__device__ inline void take_registers() {
  asm volatile("setmaxnreg.inc.sync.aligned.u32 %0;" ::"n"(kRegisters));
}

// Barriers in shared memory, by address. A phase ends when `arrivals` have come and the bytes that
// were announced have landed.
__device__ inline void barrier_init(uint32_t barrier, int arrivals) {
  asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(barrier), "r"(arrivals) : "memory");
}
__device__ inline void barrier_init_done() {
  asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
}
__device__ inline void barrier_arrive(uint32_t barrier) {
  asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];" ::"r"(barrier) : "memory");
}
__device__ inline void barrier_arrive_expecting(uint32_t barrier, int bytes) {
  asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(barrier), "r"(bytes)
               : "memory");
}
// Arrives once the copy_async_* of this thread so far are complete; counts as one arrival.
__device__ inline void barrier_arrive_after_copies(uint32_t barrier) {
  asm volatile("cp.async.mbarrier.arrive.noinc.shared::cta.b64 [%0];" ::"r"(barrier) : "memory");
}
// Waits for the end of the phase with this parity.
__device__ inline void barrier_wait(uint32_t barrier, int parity) {
  asm volatile(
      "{ .reg .pred done; again: "
      "mbarrier.try_wait.parity.shared::cta.b64 done, [%0], %1; "
      "@done bra.uni finished; bra.uni again; finished: }" ::"r"(barrier),
      "r"(parity)
      : "memory");
}
// Multiples of 16 bytes, by the copy engine.
__device__ inline void copy_bulk(uint32_t target, const void* source, int bytes, uint32_t barrier) {
  asm volatile(
      "cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], %2, [%3];" ::
          "r"(target),
      "l"(source), "r"(bytes), "r"(barrier)
      : "memory");
}

}  // namespace motley::cuda
