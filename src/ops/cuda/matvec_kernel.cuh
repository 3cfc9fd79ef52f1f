// The bfloat16 kernel of matvec.h: BF16 weights, and every format in the exact profile.
#pragma once

#include "ops/cuda/matvec_common.cuh"

namespace motley::cuda {

inline constexpr int kMatvecDepth = 3;  // stages in flight per warp

template <int kBits>
constexpr int matvec_shared_bytes() {
  return kMatvecWarps * kMatvecDepth * MatvecStage<kBits>::kBytes;
}

// The rows of x that a lane reads: as operand column g of each tile, and for the sums 2t, 2t + 1.
template <int kTiles>
struct MatvecColumns {
  const __nv_bfloat16* x[kTiles];  // null: no such row
  const float* sums[kTiles][2];
};

template <int kTiles>
struct MatvecSums {
  float total[1][kTiles][4] = {};
  float group[kTiles][4] = {};
  float x_sum[kTiles][2] = {};
};

template <int kBits, int kTiles>
__device__ inline void fold_group(const MatvecCall& call, const uint8_t* stage, int group,
                                  MatvecSums<kTiles>& sums) {
  using Stage = MatvecStage<kBits>;
  const int g = static_cast<int>(threadIdx.x) % 32 / 4;
  const uint8_t* scales = stage + Stage::kCodeBytes;
  const uint8_t* biases = scales + 16 * kMatvecTileRows;
  float scale[2];
  float bias[2];
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    const int slot = (g + 8 * half) * 16;
    scale[half] = scale_at(scales + slot, group, call.scales_are_f16);
    bias[half] = fmaf(scale[half], code_centre<kBits>(),
                      scale_at(biases + slot, group, call.scales_are_f16));
  }
#pragma unroll
  for (int tile = 0; tile < kTiles; ++tile) {
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      float& total = sums.total[0][tile][i];
      total = fmaf(scale[i / 2], sums.group[tile][i], total);
      total = fmaf(bias[i / 2], sums.x_sum[tile][i % 2], total);
      sums.group[tile][i] = 0;
    }
    sums.x_sum[tile][0] = 0;
    sums.x_sum[tile][1] = 0;
  }
}

template <int kBits, int kTiles, int kPieces>
__device__ inline void compute_stage(const MatvecCall& call, const uint8_t* stage, int stage_index,
                                     const MatvecColumns<kTiles>& columns,
                                     MatvecSums<kTiles>& sums) {
  using Stage = MatvecStage<kBits>;
  const int lane = static_cast<int>(threadIdx.x) % 32;
  const uint8_t* row_low = stage + (lane / 4) * Stage::kPitch;
  const uint8_t* row_high = row_low + 8 * Stage::kPitch;
  const int group_mask = (1 << call.group_blocks_log2) - 1;
#pragma unroll
  for (int block = 0; block < Stage::kCols / 32; ++block) {
    const int k_block = stage_index * (Stage::kCols / 32) + block;
    uint32_t low[4];
    uint32_t high[4];
    decode_unit<kBits>(row_low, block * 4 + lane % 4, low);
    decode_unit<kBits>(row_high, block * 4 + lane % 4, high);
#pragma unroll
    for (int tile = 0; tile < kTiles; ++tile) {
      float(&target)[4] = kBits == kPlainBits ? sums.total[0][tile] : sums.group[tile];
#pragma unroll
      for (int piece = 0; piece < kPieces; ++piece) {
        uint4 x = make_uint4(0, 0, 0, 0);
        if (columns.x[tile] != nullptr) {
          x = *reinterpret_cast<const uint4*>(columns.x[tile] + piece * call.x.piece_stride +
                                              k_block * 32 + (lane % 4) * 8);
        }
        mma_bf16(target, low[0], high[0], low[1], high[1], x.x, x.y);
        mma_bf16(target, low[2], high[2], low[3], high[3], x.z, x.w);
      }
      if constexpr (kBits != kPlainBits) {
        sums.x_sum[tile][0] += columns.sums[tile][0][k_block];
        sums.x_sum[tile][1] += columns.sums[tile][1][k_block];
      }
    }
    if constexpr (kBits != kPlainBits) {
      if (((block + 1) & group_mask) == 0) {
        fold_group<kBits, kTiles>(call, stage, block >> call.group_blocks_log2, sums);
      }
    }
  }
}

template <int kTiles>
__device__ inline MatvecColumns<kTiles> find_columns(const MatvecCall& call, const MatvecJob& job,
                                                     int first) {
  MatvecColumns<kTiles> columns;
  const int lane = static_cast<int>(threadIdx.x) % 32;
  const int64_t blocks = call.x.padded_cols / 32;
#pragma unroll
  for (int tile = 0; tile < kTiles; ++tile) {
    const int i = first + tile * 8 + lane / 4;
    columns.x[tile] = nullptr;
    if (i < job.count) columns.x[tile] = call.x.pieces + matvec_x_row(job, i) * call.x.padded_cols;
#pragma unroll
    for (int j = 0; j < 2; ++j) {
      // Columns past the end read a real row; nobody looks at their result.
      const int column = min(first + tile * 8 + lane % 4 * 2 + j, job.count - 1);
      columns.sums[tile][j] = call.x.sums + matvec_x_row(job, column) * blocks;
    }
  }
  return columns;
}

// Grid: (tiles of all jobs, blocks of 8 * kTiles rows of x).
template <int kBits, int kTiles, int kPieces>
__global__ void __launch_bounds__(32 * kMatvecWarps)
    matvec_kernel(const __grid_constant__ MatvecCall call) {
  using Stage = MatvecStage<kBits>;
  constexpr int kDepth = kMatvecDepth;
  extern __shared__ __align__(16) uint8_t shared[];
  int tile = 0;
  const MatvecJob job = find_job(call, static_cast<int>(blockIdx.x), &tile);
  const int first = static_cast<int>(blockIdx.y) * 8 * kTiles;
  if (first >= job.count) return;
  const int row0 = tile * kMatvecTileRows;
  uint8_t* ring = shared + threadIdx.x / 32 * kDepth * Stage::kBytes;
  const auto [begin, end] = warp_stages<Stage>(call.cols);
  const StageSource source = find_stage_source<Stage>(call, job, row0);
#pragma unroll
  for (int i = 0; i < kDepth; ++i) {
    if (begin + i < end) issue_stage<Stage>(source, begin + i, ring + i * Stage::kBytes);
    copy_async_commit();
  }
  let_next_kernel_start();
  wait_for_previous_kernel();  // weights do not depend on it, rows of x do
  const MatvecColumns<kTiles> columns = find_columns<kTiles>(call, job, first);
  MatvecSums<kTiles> sums;
  int slot = 0;
  for (int stage = begin; stage < end; ++stage) {
    copy_async_wait<kDepth - 1>();
    __syncwarp();
    uint8_t* buffer = ring + slot * Stage::kBytes;
    compute_stage<kBits, kTiles, kPieces>(call, buffer, stage, columns, sums);
    __syncwarp();
    if (stage + kDepth < end) {
      issue_stage<Stage>(source, stage + kDepth, buffer);
    }
    copy_async_commit();
    slot = slot + 1 == kDepth ? 0 : slot + 1;
  }
  reduce_and_store<1, 1, kTiles>(job, row0, first, sums.total, reinterpret_cast<float*>(shared));
}

}  // namespace motley::cuda
