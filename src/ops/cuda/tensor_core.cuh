// Warp-level matrix products and asynchronous copies, sm_80 and newer.
//
// Fragments of mma.m16n8k16, with g = lane / 4 and t = lane % 4:
//   A  a0 (row g, k 2t..2t+1)  a1 (row g+8, same)  a2 (row g, k 2t+8..)  a3 (row g+8, k 2t+8..)
//   B  b0 (k 2t..2t+1, column g)  b1 (k 2t+8.., column g)
//   C  c0, c1 (row g, columns 2t, 2t+1)  c2, c3 (row g+8)
// A sum over k does not care how k is numbered, as long as A and B agree: kernels use that to load
// 8 consecutive elements per lane.
#pragma once

#include <cstdint>

namespace motley::cuda {

__device__ inline void mma_bf16(float (&c)[4], uint32_t a0, uint32_t a1, uint32_t a2, uint32_t a3,
                                uint32_t b0, uint32_t b1) {
  asm("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 "
      "{%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"
      : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
      : "r"(a0), "r"(a1), "r"(a2), "r"(a3), "r"(b0), "r"(b1));
}

// m16n8k32 on bytes: as above with k 4t..4t+3 and 16 + 4t..; unsigned A, signed B.
__device__ inline void mma_bytes(int32_t (&c)[4], uint32_t a0, uint32_t a1, uint32_t a2,
                                 uint32_t a3, uint32_t b0, uint32_t b1) {
  asm("mma.sync.aligned.m16n8k32.row.col.s32.u8.s8.s32 "
      "{%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"
      : "+r"(c[0]), "+r"(c[1]), "+r"(c[2]), "+r"(c[3])
      : "r"(a0), "r"(a1), "r"(a2), "r"(a3), "r"(b0), "r"(b1));
}

// A kernel launched as a dependent one (see launch_dependent) may start while its predecessor
// runs; past this call the predecessor's results are there. No effect otherwise.
__device__ inline void wait_for_previous_kernel() {
#if __CUDA_ARCH__ >= 900
  asm volatile("griddepcontrol.wait;" ::: "memory");
#endif
}
// Lets such a dependent kernel start once every block has come here.
__device__ inline void let_next_kernel_start() {
#if __CUDA_ARCH__ >= 900
  asm volatile("griddepcontrol.launch_dependents;");
#endif
}

__device__ inline uint32_t shared_address(const void* pointer) {
  return static_cast<uint32_t>(__cvta_generic_to_shared(pointer));
}

// 16 bytes, of which the first `valid` come from `source` and the rest are zero.
__device__ inline void copy_async_16(void* target, const void* source, int valid) {
  asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(shared_address(target)),
               "l"(source), "r"(valid));
}
// kBytes of 4, 8 or 16; zero when not `valid`.
template <int kBytes>
__device__ inline void copy_async_small(void* target, const void* source, bool valid) {
  asm volatile("cp.async.ca.shared.global [%0], [%1], %2, %3;" ::"r"(shared_address(target)),
               "l"(source), "n"(kBytes), "r"(valid ? kBytes : 0));
}
__device__ inline void copy_async_commit() {
  asm volatile("cp.async.commit_group;");
}
template <int kPending>
__device__ inline void copy_async_wait() {
  asm volatile("cp.async.wait_group %0;" ::"n"(kPending) : "memory");
}

// Four 8x8 matrices of 16-bit elements; lane i names row i % 8 of matrix i / 8.
__device__ inline void load_matrix_x4(uint32_t (&out)[4], uint32_t address) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0,%1,%2,%3}, [%4];"
               : "=r"(out[0]), "=r"(out[1]), "=r"(out[2]), "=r"(out[3])
               : "r"(address));
}
__device__ inline void load_matrix_x4_transposed(uint32_t (&out)[4], uint32_t address) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0,%1,%2,%3}, [%4];"
               : "=r"(out[0]), "=r"(out[1]), "=r"(out[2]), "=r"(out[3])
               : "r"(address));
}

}  // namespace motley::cuda
