// The integer kernel of matvec.h: affine weights against 16-bit fixed-point rows (fast profile).
//
// A group's sum of code * x is exact in int32 (at most 128 * 255 * 32,767 < 2^31). Over a block of
// 128 elements, t = sum over groups of scale_w * sum + bias_w * sum(x) in float32, then
// y += scale_x * t.
#pragma once

#include "ops/cuda/integer_rows.h"
#include "ops/cuda/matvec_common.cuh"

namespace motley::cuda {

template <int kTiles>
struct IntegerColumns {
  const uint4* units[kTiles];      // of operand column g; null: no such row
  const float* blocks[kTiles][2];  // of columns 2t, 2t + 1
};

// One block of 128 elements of the rows of x.
template <int kTiles, int kFloats>
struct IntegerBlock {
  uint4 units[kTiles][4];
  float info[kTiles][2][kFloats];
};

template <int kTiles>
__device__ inline IntegerColumns<kTiles> find_integer_columns(const IntegerRows& x,
                                                              const MatvecJob& job, int first,
                                                              int floats) {
  IntegerColumns<kTiles> columns;
  const int lane = static_cast<int>(threadIdx.x) % 32;
#pragma unroll
  for (int tile = 0; tile < kTiles; ++tile) {
    const int i = first + tile * 8 + lane / 4;
    columns.units[tile] = nullptr;
    if (i < job.count) {
      columns.units[tile] = x.units + matvec_x_row(job, i) * (x.padded_cols / 8) + lane % 4;
    }
#pragma unroll
    for (int j = 0; j < 2; ++j) {
      // Columns past the end read a real row; nobody looks at their result.
      const int column = min(first + tile * 8 + lane % 4 * 2 + j, job.count - 1);
      columns.blocks[tile][j] =
          x.blocks + matvec_x_row(job, column) * (x.padded_cols / kIntegerBlock) * floats;
    }
  }
  return columns;
}

template <int kFloats>
__device__ inline void load_floats(const float* source, float (&out)[kFloats]) {
  if constexpr (kFloats == 2) {
    const float2 value = *reinterpret_cast<const float2*>(source);
    out[0] = value.x;
    out[1] = value.y;
  } else {
#pragma unroll
    for (int i = 0; i < kFloats; i += 4) {
      const float4 value = *reinterpret_cast<const float4*>(source + i);
      out[i] = value.x;
      out[i + 1] = value.y;
      out[i + 2] = value.z;
      out[i + 3] = value.w;
    }
  }
}

template <int kTiles, int kFloats>
__device__ inline void load_integer_block(const IntegerColumns<kTiles>& columns, int index,
                                          IntegerBlock<kTiles, kFloats>& block) {
#pragma unroll
  for (int tile = 0; tile < kTiles; ++tile) {
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      block.units[tile][i] = make_uint4(0, 0, 0, 0);
      if (columns.units[tile] != nullptr) {
        block.units[tile][i] = columns.units[tile][index * 16 + i * 4];
      }
    }
#pragma unroll
    for (int j = 0; j < 2; ++j) {
      load_floats<kFloats>(columns.blocks[tile][j] + index * kFloats, block.info[tile][j]);
    }
  }
}

// Scales (or biases) of the groups of half a stage, from a row's 16-byte slot.
template <int kGroups>
__device__ inline void load_bf16_scales(const uint8_t* slot, int half, float (&out)[kGroups]) {
  if constexpr (kGroups == 1) {
    const uint32_t bits = reinterpret_cast<const uint16_t*>(slot)[half];
    out[0] = __uint_as_float(bits << 16);
  } else {
#pragma unroll
    for (int i = 0; i < kGroups; i += 2) {
      const uint32_t pair = reinterpret_cast<const uint32_t*>(slot)[half * kGroups / 2 + i / 2];
      out[i] = low_bf16(pair);
      out[i + 1] = high_bf16(pair);
    }
  }
}

// Codes of a lane's two rows in 32 columns.
struct CodeBlock {
  uint32_t even[2];
  uint32_t odd[2];
};

// Adds one block of 128 columns, half a stage, to the totals.
template <int kBits, int kTiles, int kGroupBlocks>
__device__ inline void compute_half(
    const uint8_t* stage, int half,
    const IntegerBlock<kTiles, integer_block_floats(32 * kGroupBlocks)>& x,
    float (&total)[kTiles][4]) {
  using Stage = MatvecStage<kBits>;
  constexpr int kGroups = 4 / kGroupBlocks;
  const int lane = static_cast<int>(threadIdx.x) % 32;
  const uint8_t* row_low = stage + (lane / 4) * Stage::kPitch;
  const uint8_t* row_high = row_low + 8 * Stage::kPitch;
  const uint8_t* slot = stage + Stage::kCodeBytes + lane / 4 * 16;
  float scale[2][kGroups];
  float bias[2][kGroups];
#pragma unroll
  for (int i = 0; i < 2; ++i) {
    load_bf16_scales<kGroups>(slot + i * 128, half, scale[i]);
    load_bf16_scales<kGroups>(slot + i * 128 + 16 * kMatvecTileRows, half, bias[i]);
  }
  CodeBlock codes[4];
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    const int unit = (half * 4 + i) * 4 + lane % 4;
    code_bytes<kBits>(row_low, unit, &codes[i].even[0], &codes[i].odd[0]);
    code_bytes<kBits>(row_high, unit, &codes[i].even[1], &codes[i].odd[1]);
  }
  float block_total[kTiles][4] = {};
#pragma unroll
  for (int group = 0; group < kGroups; ++group) {
    int32_t high[kTiles][4] = {};
    int32_t low[kTiles][4] = {};
#pragma unroll
    for (int i = group * kGroupBlocks; i < (group + 1) * kGroupBlocks; ++i) {
      const uint32_t(&even)[2] = codes[i].even;
      const uint32_t(&odd)[2] = codes[i].odd;
#pragma unroll
      for (int tile = 0; tile < kTiles; ++tile) {
        const uint4& b = x.units[tile][i];
        mma_bytes(high[tile], even[0], even[1], odd[0], odd[1], b.x, b.y);
        mma_bytes(low[tile], even[0], even[1], odd[0], odd[1], b.z, b.w);
      }
    }
#pragma unroll
    for (int tile = 0; tile < kTiles; ++tile) {
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        const auto sum = static_cast<float>(high[tile][i] * 256 + low[tile][i]);
        float& t = block_total[tile][i];
        t = fmaf(scale[i / 2][group], sum, t);
        t = fmaf(bias[i / 2][group], x.info[tile][i % 2][1 + group], t);
      }
    }
  }
#pragma unroll
  for (int tile = 0; tile < kTiles; ++tile) {
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      total[tile][i] = fmaf(x.info[tile][i % 2][0], block_total[tile][i], total[tile][i]);
    }
  }
}

// The next tile from `tile` on, in steps of the grid, that has rows of x for this block.
__device__ inline int skip_empty_tiles(const MatvecCall& call, int tile, int first) {
  int unused = 0;
  while (tile < call.tiles && first >= find_job(call, tile, &unused).count) {
    tile += static_cast<int>(gridDim.x);
  }
  return tile;
}

// Keeps the ring of a warp full: stages of this tile, then of the block's next ones.
template <int kBits>
struct StageCursor {
  StageSource<kBits> source;
  int tile;
  int stage;

  __device__ void find_source(const MatvecCall& call) {
    int in_job = 0;
    const MatvecJob& job = find_job(call, tile, &in_job);
    source = find_stage_source<kBits>(call, job, in_job * kMatvecTileRows);
  }
  __device__ void issue(const MatvecCall& call, const MatvecRange& range, int first,
                        uint8_t* target) {
    if (tile < call.tiles && range.begin < range.end) {
      issue_stage<kBits>(source, stage, target);
      if (++stage == range.end) {
        stage = range.begin;
        tile = skip_empty_tiles(call, tile + static_cast<int>(gridDim.x), first);
        if (tile < call.tiles) find_source(call);
      }
    }
    copy_async_commit();
  }
};

template <int kBits, int kTiles>
struct IntegerLaunch {
  static constexpr int kExchangeBytes = kMatvecWarps * kMatvecTileRows * (8 * kTiles + 1) * 4;
  static constexpr int kSharedBytes = MatvecStage<kBits>::kSharedBytes + kExchangeBytes;
  // Blocks that a multiprocessor with 227 KiB of shared memory holds.
  static constexpr int kByShared = 227 * 1024 / (kSharedBytes + 1024);
  static constexpr int kWanted = kTiles == 1 ? 5 : 3;
  static constexpr int kBlocks = kByShared < kWanted ? kByShared : kWanted;
};

// Grid: (blocks that share the tiles of all jobs, blocks of 8 * kTiles rows of x).
template <int kBits, int kTiles, int kGroupBlocks>
__global__ void __launch_bounds__(32 * kMatvecWarps, IntegerLaunch<kBits, kTiles>::kWanted)
    integer_kernel(const __grid_constant__ MatvecCall call, const __grid_constant__ IntegerRows x) {
  using Stage = MatvecStage<kBits>;
  constexpr int kFloats = integer_block_floats(32 * kGroupBlocks);
  extern __shared__ __align__(16) uint8_t shared[];
  const int first = static_cast<int>(blockIdx.y) * 8 * kTiles;
  uint8_t* ring = shared + threadIdx.x / 32 * Stage::kDepth * Stage::kBytes;
  auto* exchange = reinterpret_cast<float*>(shared + Stage::kSharedBytes);
  const MatvecRange range = warp_stages<kBits>(call.cols);
  int tile = skip_empty_tiles(call, static_cast<int>(blockIdx.x), first);
  if (tile >= call.tiles) return;
  StageCursor<kBits> cursor;
  cursor.tile = tile;
  cursor.stage = range.begin;
  cursor.find_source(call);
  for (int i = 0; i < Stage::kDepth; ++i)
    cursor.issue(call, range, first, ring + i * Stage::kBytes);
  wait_for_previous_kernel();  // weights do not depend on it, rows of x do
  int slot = 0;
  for (; tile < call.tiles;
       tile = skip_empty_tiles(call, tile + static_cast<int>(gridDim.x), first)) {
    int in_job = 0;
    const MatvecJob& job = find_job(call, tile, &in_job);
    const IntegerColumns<kTiles> columns = find_integer_columns<kTiles>(x, job, first, kFloats);
    float total[kTiles][4] = {};
    for (int stage = range.begin; stage < range.end; ++stage) {
      IntegerBlock<kTiles, kFloats> block;
      load_integer_block(columns, 2 * stage, block);  // in flight while the weights arrive
      copy_async_wait<Stage::kDepth - 1>();
      __syncwarp();
      uint8_t* buffer = ring + slot * Stage::kBytes;
      compute_half<kBits, kTiles, kGroupBlocks>(buffer, 0, block, total);
      load_integer_block(columns, 2 * stage + 1, block);
      compute_half<kBits, kTiles, kGroupBlocks>(buffer, 1, block, total);
      __syncwarp();
      cursor.issue(call, range, first, buffer);
      slot = slot + 1 == Stage::kDepth ? 0 : slot + 1;
    }
    reduce_and_store<kTiles>(job, in_job * kMatvecTileRows, first, total, exchange);
  }
}

}  // namespace motley::cuda
