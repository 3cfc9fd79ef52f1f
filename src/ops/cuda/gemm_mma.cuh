// The portable tile kernel of gemm.h: mma.sync, eight warps of 32 rows of W by 64 rows of x.
#pragma once

#include "ops/cuda/gemm_tile.cuh"

namespace motley::cuda {

inline constexpr int kMmaThreads = 256;

template <int kBits>
using MmaStage = GemmStage<kBits, kTileX, kBits == kPlainBits ? 3 : 4>;

// 8 chunks a row over 256 threads, rows 32 apart.
template <int kBits>
__device__ inline void issue_mma_stage(const GemmCall& call, const GemmPlace& place, int stage,
                                       uint8_t* target) {
  const int thread = static_cast<int>(threadIdx.x);
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    const int row = thread / 8 + 32 * i;
    const bool inside = place.first + row < place.item.count;
    const int64_t from = inside ? place.item.first_x + place.first + row : 0;
    copy_async_16(target + x_chunk_offset(row, thread % 8),
                  call.x.pieces + from * call.x.padded_cols + stage * kTileK + thread % 8 * 8,
                  inside ? 16 : 0);
  }
  issue_codes<MmaStage<kBits>, kBits, kMmaThreads>(call, place.item, place.w0, stage, thread,
                                                   target + MmaStage<kBits>::kXBytes);
}

template <int kBits>
__device__ inline void multiply_stage(const GemmCall& call, const uint8_t* stage,
                                      const uint32_t (&scales)[2][4], float (&c)[2][8][4]) {
  using Stage = MmaStage<kBits>;
  const int lane = static_cast<int>(threadIdx.x) % 32;
  const int warp = static_cast<int>(threadIdx.x) / 32;
  const uint8_t* codes = stage + Stage::kXBytes + (warp % 4 * 32 + lane / 4) * Stage::kPitch;
  const int x_row = warp / 4 * 64 + lane / 16 * 8 + lane % 8;
  const uint32_t x_base = shared_address(stage);
#pragma unroll
  for (int block = 0; block < kTileK / 32; ++block) {
    uint32_t w[4][4];
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      scaled_unit<kBits, true>(call, codes + i * 8 * Stage::kPitch, block * 4 + lane % 4,
                               low_half_twice(scales[block][i]), high_half_twice(scales[block][i]),
                               w[i]);
    }
#pragma unroll
    for (int step = 0; step < 2; ++step) {
      const int chunk = block * 4 + step * 2 + lane / 8 % 2;
#pragma unroll
      for (int pair = 0; pair < 4; ++pair) {
        uint32_t x[4];
        load_matrix_x4(x, x_base + static_cast<uint32_t>(x_chunk_offset(x_row + pair * 16, chunk)));
#pragma unroll
        for (int m = 0; m < 2; ++m) {
#pragma unroll
          for (int n = 0; n < 2; ++n) {
            mma_bf16(c[m][pair * 2 + n], w[2 * m][2 * step], w[2 * m + 1][2 * step],
                     w[2 * m][2 * step + 1], w[2 * m + 1][2 * step + 1], x[2 * n], x[2 * n + 1]);
          }
        }
      }
    }
  }
}

template <int kBits>
__device__ inline void load_scales(const GemmCall& call, const GemmItem& item, int w0, int stage,
                                   uint32_t (&scales)[2][4]) {
  if constexpr (kBits != kPlainBits) {
    const int row =
        w0 + static_cast<int>(threadIdx.x) / 32 % 4 * 32 + static_cast<int>(threadIdx.x) % 32 / 4;
#pragma unroll
    for (int block = 0; block < 2; ++block) {
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        const int group = (stage * kTileK + block * 32) >> call.group_log2;
        scales[block][i] = block == 1 && call.group_log2 >= 6
                               ? scales[0][i]
                               : load_group_scale(call, item, row + 8 * i, group);
      }
    }
  }
}

__device__ inline void store_tile(const GemmCall& call, const GemmItem& item, int w0, int first,
                                  const float (&c)[2][8][4]) {
  const int lane = static_cast<int>(threadIdx.x) % 32;
  const int warp = static_cast<int>(threadIdx.x) / 32;
#pragma unroll
  for (int n = 0; n < 8; ++n) {
#pragma unroll
    for (int j = 0; j < 2; ++j) {
      const int index = first + warp / 4 * 64 + n * 8 + lane % 4 * 2 + j;
      if (index >= item.count) continue;
      const int64_t out = item.out_ids == nullptr ? item.first_out + index : item.out_ids[index];
      float* y = item.y + out * call.y_stride;
#pragma unroll
      for (int m = 0; m < 4; ++m) {
        const int row = w0 + warp % 4 * 32 + lane / 4 + 8 * m;
        if (row < call.rows) y[row] = c[m / 2][n][m % 2 * 2 + j];
      }
    }
  }
}

// Grid: (tiles of W, tiles of x).
template <int kBits>
__global__ void __launch_bounds__(kMmaThreads)
    gemm_mma_kernel(const __grid_constant__ GemmCall call) {
  using Stage = MmaStage<kBits>;
  extern __shared__ uint8_t storage[];
  uint8_t* ring = storage + (1024 - shared_address(storage) % 1024) % 1024;
  const GemmPlace place =
      find_place(call, static_cast<int>(blockIdx.y), static_cast<int>(blockIdx.x), kTileX);
  const GemmItem& item = place.item;
  const int w0 = place.w0;
  const int stages = (call.cols + kTileK - 1) / kTileK;
  for (int i = 0; i < Stage::kDepth - 1; ++i) {
    if (i < stages) issue_mma_stage<kBits>(call, place, i, ring + i * Stage::kBytes);
    copy_async_commit();
  }
  float c[2][8][4] = {};
  uint32_t scales[2][4] = {};
  uint32_t next[2][4] = {};
  load_scales<kBits>(call, item, w0, 0, next);
  for (int stage = 0; stage < stages; ++stage) {
    copy_async_wait<Stage::kDepth - 2>();
    __syncthreads();
    const int ahead = stage + Stage::kDepth - 1;
    if (ahead < stages) {
      issue_mma_stage<kBits>(call, place, ahead, ring + ahead % Stage::kDepth * Stage::kBytes);
    }
    copy_async_commit();
#pragma unroll
    for (int i = 0; i < 8; ++i) scales[i / 4][i % 4] = next[i / 4][i % 4];
    if (stage + 1 < stages) load_scales<kBits>(call, item, w0, stage + 1, next);
    multiply_stage<kBits>(call, ring + stage % Stage::kDepth * Stage::kBytes, scales, c);
  }
  store_tile(call, item, w0, place.first, c);
}

}  // namespace motley::cuda
