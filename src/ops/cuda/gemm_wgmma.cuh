// The Hopper tile kernel of gemm.h: two warpgroups of 64 rows of W by 128 or 256 rows of x, weights
// decoded into the register operand of wgmma while the previous product runs.
#pragma once

#include "ops/cuda/gemm_tile.cuh"

namespace motley::cuda {

// c[64 x 128] += A[64 x 16] B[16 x 128]: A in registers (fragments as mma.m16n8k16, one per warp),
// B in shared memory, K-major with the 128-byte swizzle. c[4 n + i] is accumulator i of column tile
// n. Without `accumulate` c is overwritten.
__device__ inline void wgmma_n128(float (&c)[64], const uint32_t* a, uint64_t b, int accumulate) {
  asm volatile(
      "{ .reg .pred accumulate; setp.ne.b32 accumulate, %69, 0; "
      "wgmma.mma_async.sync.aligned.m64n128k16.f32.bf16.bf16 {"
      "%0, %1, %2, %3, %4, %5, %6, %7, "
      "%8, %9, %10, %11, %12, %13, %14, %15, "
      "%16, %17, %18, %19, %20, %21, %22, %23, "
      "%24, %25, %26, %27, %28, %29, %30, %31, "
      "%32, %33, %34, %35, %36, %37, %38, %39, "
      "%40, %41, %42, %43, %44, %45, %46, %47, "
      "%48, %49, %50, %51, %52, %53, %54, %55, "
      "%56, %57, %58, %59, %60, %61, %62, %63"
      "}, {%64, %65, %66, %67}, %68, accumulate, 1, 1, 0; }"
      : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3]), "+f"(c[4]), "+f"(c[5]), "+f"(c[6]),
        "+f"(c[7]), "+f"(c[8]), "+f"(c[9]), "+f"(c[10]), "+f"(c[11]), "+f"(c[12]), "+f"(c[13]),
        "+f"(c[14]), "+f"(c[15]), "+f"(c[16]), "+f"(c[17]), "+f"(c[18]), "+f"(c[19]), "+f"(c[20]),
        "+f"(c[21]), "+f"(c[22]), "+f"(c[23]), "+f"(c[24]), "+f"(c[25]), "+f"(c[26]), "+f"(c[27]),
        "+f"(c[28]), "+f"(c[29]), "+f"(c[30]), "+f"(c[31]), "+f"(c[32]), "+f"(c[33]), "+f"(c[34]),
        "+f"(c[35]), "+f"(c[36]), "+f"(c[37]), "+f"(c[38]), "+f"(c[39]), "+f"(c[40]), "+f"(c[41]),
        "+f"(c[42]), "+f"(c[43]), "+f"(c[44]), "+f"(c[45]), "+f"(c[46]), "+f"(c[47]), "+f"(c[48]),
        "+f"(c[49]), "+f"(c[50]), "+f"(c[51]), "+f"(c[52]), "+f"(c[53]), "+f"(c[54]), "+f"(c[55]),
        "+f"(c[56]), "+f"(c[57]), "+f"(c[58]), "+f"(c[59]), "+f"(c[60]), "+f"(c[61]), "+f"(c[62]),
        "+f"(c[63])
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b), "r"(accumulate));
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
// Shared memory written by cp.async becomes visible to wgmma.
__device__ inline void fence_shared_for_wgmma() {
  asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
}

// Descriptor of a K-major operand with the 128-byte swizzle: groups of 8 rows 1,024 bytes apart.
__device__ inline uint64_t wgmma_descriptor(uint32_t address) {
  return (uint64_t{(address & 0x3FFFFu) >> 4}) | (uint64_t{1} << 16) | (uint64_t{64} << 32) |
         (uint64_t{1} << 62);
}

// Scale and bias of the two rows of W that a lane decodes, per block of 32 columns of a stage.
struct WgmmaScales {
  uint32_t value[2][2];  // [block][row]
};

template <int kBits>
__device__ inline void load_wgmma_scales(const GemmCall& call, const GemmPlace& place, int stage,
                                         WgmmaScales& scales) {
  if constexpr (kBits != kPlainBits) {
    const int row =
        place.w0 + static_cast<int>(threadIdx.x) / 32 * 16 + static_cast<int>(threadIdx.x) % 32 / 4;
#pragma unroll
    for (int block = 0; block < 2; ++block) {
#pragma unroll
      for (int i = 0; i < 2; ++i) {
        const int group = (stage * kTileK + block * 32) >> call.group_log2;
        scales.value[block][i] = block == 1 && call.group_log2 >= 6
                                     ? scales.value[0][i]
                                     : load_group_scale(call, place.item, row + 8 * i, group);
      }
    }
  }
}

// Two k16 operands (8 registers) from block `block` of the codes in shared memory.
template <int kBits, int kXTiles>
__device__ inline void decode_operands(const GemmCall& call, const uint8_t* stage, int block,
                                       const WgmmaScales& scales, uint32_t (&a)[8]) {
  using Stage = GemmStage<kBits, kXTiles>;
  const int lane = static_cast<int>(threadIdx.x) % 32;
  const uint8_t* codes =
      stage + Stage::kXBytes + (static_cast<int>(threadIdx.x) / 32 * 16 + lane / 4) * Stage::kPitch;
  uint32_t w[2][4];
#pragma unroll
  for (int i = 0; i < 2; ++i) {
    scaled_unit<kBits>(call, codes + i * 8 * Stage::kPitch, block * 4 + lane % 4,
                       scales.value[block][i], w[i]);
  }
#pragma unroll
  for (int step = 0; step < 2; ++step) {
    a[4 * step] = w[0][2 * step];
    a[4 * step + 1] = w[1][2 * step];
    a[4 * step + 2] = w[0][2 * step + 1];
    a[4 * step + 3] = w[1][2 * step + 1];
  }
}

// The products of one block of 32 columns, as one group.
template <int kXTiles>
__device__ inline void multiply_block(uint32_t x_address, int block, const uint32_t (&a)[8],
                                      bool accumulate, float (&c)[kXTiles][64]) {
  wgmma_fence();
#pragma unroll
  for (int step = 0; step < 2; ++step) {
#pragma unroll
    for (int tile = 0; tile < kXTiles; ++tile) {
      const uint32_t at = static_cast<uint32_t>(tile * kTileX * 128 + (block * 2 + step) * 32);
      wgmma_n128(c[tile], a + 4 * step, wgmma_descriptor(x_address + at),
                 step > 0 || accumulate ? 1 : 0);
    }
  }
  wgmma_commit();
}

template <int kXTiles>
__device__ inline void store_wgmma(const GemmCall& call, const GemmPlace& place,
                                   const float (&c)[kXTiles][64]) {
  const int lane = static_cast<int>(threadIdx.x) % 32;
  const int row0 = place.w0 + static_cast<int>(threadIdx.x) / 32 * 16 + lane / 4;
  const GemmItem& item = place.item;
#pragma unroll
  for (int tile = 0; tile < kXTiles; ++tile) {
#pragma unroll
    for (int n = 0; n < 32; ++n) {  // column tile n / 2, column n % 2 of the lane's pair
      const int index = place.first + tile * kTileX + n / 2 * 8 + lane % 4 * 2 + n % 2;
      if (index >= item.count) continue;
      const int64_t out = item.out_ids == nullptr ? item.first_out + index : item.out_ids[index];
      float* y = call.y + out * call.y_stride;
      if (row0 < call.rows) y[row0] = c[tile][n / 2 * 4 + n % 2];
      if (row0 + 8 < call.rows) y[row0 + 8] = c[tile][n / 2 * 4 + 2 + n % 2];
    }
  }
}

// Grid: (tiles of W, tiles of x).
template <int kBits, int kXTiles>
__global__ void __launch_bounds__(kGemmThreads, kXTiles == 1 ? 2 : 1)
    gemm_wgmma_kernel(const __grid_constant__ GemmCall call) {
#if defined(__CUDA_ARCH_FEAT_SM90_ALL)
  using Stage = GemmStage<kBits, kXTiles>;
  constexpr int kDepth = Stage::kDeepDepth;
  extern __shared__ uint8_t storage[];
  uint8_t* ring = storage + (1024 - shared_address(storage) % 1024) % 1024;
  const GemmPlace place = find_place<kXTiles>(call);
  const GemmSources<kXTiles> sources = find_sources<kXTiles>(call, place.item, place.first);
  const auto issue = [&](int stage) {
    issue_gemm_stage<kBits, kXTiles>(call, place.item, sources, place.w0, stage,
                                     ring + stage % kDepth * Stage::kBytes);
  };
  const int stages = (call.cols + kTileK - 1) / kTileK;
  for (int i = 0; i < kDepth - 2; ++i) {
    if (i < stages) issue(i);
    copy_async_commit();
  }
  float c[kXTiles][64];  // written by the first product: zeroing it would serialise wgmma
  WgmmaScales scales{};
  WgmmaScales next{};
  load_wgmma_scales<kBits>(call, place, 0, next);
  uint32_t a0[8];
  uint32_t a1[8];
  for (int stage = 0; stage < stages; ++stage) {
    wgmma_wait<1>();  // the product that read a0, and all of the stage before the last, are done
    copy_async_wait<kDepth - 3>();
    fence_shared_for_wgmma();
    __syncthreads();
    if (stage + kDepth - 2 < stages) issue(stage + kDepth - 2);
    copy_async_commit();
    scales = next;
    if (stage + 1 < stages) load_wgmma_scales<kBits>(call, place, stage + 1, next);
    const uint8_t* current = ring + stage % kDepth * Stage::kBytes;
    const uint32_t x_address = shared_address(current);
    decode_operands<kBits, kXTiles>(call, current, 0, scales, a0);
    multiply_block<kXTiles>(x_address, 0, a0, stage > 0, c);
    wgmma_wait<1>();  // the product that read a1 is done
    decode_operands<kBits, kXTiles>(call, current, 1, scales, a1);
    multiply_block<kXTiles>(x_address, 1, a1, true, c);
  }
  wgmma_wait<0>();
  store_wgmma<kXTiles>(call, place, c);
#endif
}

}  // namespace motley::cuda
