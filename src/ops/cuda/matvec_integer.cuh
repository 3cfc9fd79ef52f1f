// The integer kernel of matvec.h: affine weights against 16-bit fixed-point rows (fast profile).
//
// A group's sum of code * x is exact in int32 (at most 128 * 255 * 32,767 < 2^31). Over a block of
// 128 elements, t = sum over groups of scale_w * sum + bias_w * sum(x) in float32, then
// y += scale_x * t.
#pragma once

#include "ops/cuda/integer_rows.h"
#include "ops/cuda/matvec_common.cuh"
#include "ops/cuda/matvec_integer.h"

namespace motley::cuda {

// Eight rows of x as a lane sees them.
struct IntegerColumns {
  const uint4* units;      // of operand column g; null: no such row
  const float* blocks[2];  // of columns 2t, 2t + 1
};

// One block of 128 elements of eight rows of x.
template <int kFloats>
struct IntegerBlock {
  uint4 units[4];
  float info[2][kFloats];
};

__device__ inline IntegerColumns find_integer_columns(const IntegerRows& x, const MatvecJob& job,
                                                      int first, int floats) {
  IntegerColumns columns;
  const int lane = static_cast<int>(threadIdx.x) % 32;
  const int i = first + lane / 4;
  columns.units = nullptr;
  if (i < job.count) {
    columns.units = x.units + matvec_x_row(job, i) * (x.padded_cols / 8) + lane % 4;
  }
#pragma unroll
  for (int j = 0; j < 2; ++j) {
    // Columns past the end read a real row; nobody looks at their result.
    const int column = min(first + lane % 4 * 2 + j, job.count - 1);
    columns.blocks[j] =
        x.blocks + matvec_x_row(job, column) * (x.padded_cols / kIntegerBlock) * floats;
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

template <int kFloats>
__device__ inline void load_integer_block(const IntegerColumns& columns, int index,
                                          IntegerBlock<kFloats>& block) {
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    block.units[i] = make_uint4(0, 0, 0, 0);
    if (columns.units != nullptr) block.units[i] = columns.units[index * 16 + i * 4];
  }
#pragma unroll
  for (int j = 0; j < 2; ++j) {
    load_floats<kFloats>(columns.blocks[j] + index * kFloats, block.info[j]);
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

// Adds 16 rows of W against eight of x over 128 columns, half a stage, to their totals.
template <typename Stage, int kGroupBlocks>
__device__ inline void compute_half(const uint8_t* stage, int row_tile, int half,
                                    const IntegerBlock<integer_block_floats(32 * kGroupBlocks)>& x,
                                    float (&total)[4]) {
  constexpr int kGroups = 4 / kGroupBlocks;
  const int lane = static_cast<int>(threadIdx.x) % 32;
  const uint8_t* row_low = stage + (row_tile * 16 + lane / 4) * Stage::kPitch;
  const uint8_t* row_high = row_low + 8 * Stage::kPitch;
  const uint8_t* slot = stage + Stage::kCodeBytes + (row_tile * 32 + lane / 4) * Stage::kSlot;
  float scale[2][kGroups];
  float bias[2][kGroups];
#pragma unroll
  for (int i = 0; i < 2; ++i) {
    load_bf16_scales<kGroups>(slot + 8 * i * Stage::kSlot, half, scale[i]);
    load_bf16_scales<kGroups>(slot + (8 * i + 16) * Stage::kSlot, half, bias[i]);
  }
  CodeBlock codes[4];
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    const int unit = (half * 4 + i) * 4 + lane % 4;
    code_bytes<Stage::kBits>(row_low, unit, &codes[i].even[0], &codes[i].odd[0]);
    code_bytes<Stage::kBits>(row_high, unit, &codes[i].even[1], &codes[i].odd[1]);
  }
  float block_total[4] = {};
#pragma unroll
  for (int group = 0; group < kGroups; ++group) {
    int32_t high[4] = {};
    int32_t low[4] = {};
#pragma unroll
    for (int i = group * kGroupBlocks; i < (group + 1) * kGroupBlocks; ++i) {
      const uint32_t(&even)[2] = codes[i].even;
      const uint32_t(&odd)[2] = codes[i].odd;
      mma_bytes(high, even[0], even[1], odd[0], odd[1], x.units[i].x, x.units[i].y);
      mma_bytes(low, even[0], even[1], odd[0], odd[1], x.units[i].z, x.units[i].w);
    }
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      const auto sum = static_cast<float>(high[i] * 256 + low[i]);
      block_total[i] = fmaf(scale[i / 2][group], sum, block_total[i]);
      block_total[i] = fmaf(bias[i / 2][group], x.info[i % 2][1 + group], block_total[i]);
    }
  }
#pragma unroll
  for (int i = 0; i < 4; ++i) total[i] = fmaf(x.info[i % 2][0], block_total[i], total[i]);
}

// The next tile from `tile` on, in steps of the grid, that has rows of x for this block.
__device__ inline int skip_empty_tiles(const MatvecCall& call, int tile, int first) {
  if (first == 0) return tile;  // every job has a row
  int unused = 0;
  while (tile < call.tiles && first >= find_job(call, tile, &unused).count) {
    tile += static_cast<int>(gridDim.x);
  }
  return tile;
}

// Keeps the ring of a warp full: stages of this tile, then of the block's next ones.
template <typename Stage, int kRowGroups>
struct StageCursor {
  StageSource source;
  int tile;
  int stage;

  __device__ void find_source(const MatvecCall& call) {
    int in_job = 0;
    const MatvecJob& job = find_job(call, tile, &in_job);
    const int group = static_cast<int>(threadIdx.x) / 32 / kMatvecWarps;
    source = find_stage_source<Stage>(call, job, (in_job * kRowGroups + group) * Stage::kRows);
  }
  __device__ void issue(const MatvecCall& call, const MatvecRange& range, int first,
                        uint8_t* target) {
    if (tile < call.tiles && range.begin < range.end) {
      issue_stage<Stage>(source, stage, target);
      if (++stage == range.end) {
        stage = range.begin;
        tile = skip_empty_tiles(call, tile + static_cast<int>(gridDim.x), first);
        if (tile < call.tiles) find_source(call);
      }
    }
    copy_async_commit();
  }
};

// kLarge tiles read each row of x for twice as many rows of W; small ones share short matrices
// better over the multiprocessors. The sums of a row are the same in both.
template <int kBits, bool kLarge, int kTiles, int kGroupBlocks>
struct IntegerLaunch {
  // Groups of warps with different rows of W: more warps to hide latency, or with sixteen rows of x
  // fewer reads of them.
  static constexpr int kRowGroups = kLarge && kTiles == 2 ? 1 : 2;
  static constexpr int kThreads = 32 * kMatvecWarps * kRowGroups;
  static constexpr int kTileRows = integer_tile_rows(kBits, kLarge);
  static constexpr int kRowTiles = kTileRows / (kMatvecTileRows * kRowGroups);
  using Stage = MatvecStage<kBits, kRowTiles, 16 / kGroupBlocks>;
  static constexpr int kDepth = kLarge || kBits == 8 ? 2 : 3;
  static constexpr int kRingBytes = kThreads / 32 * kDepth * Stage::kBytes;
  static constexpr int kExchangeBytes = kMatvecWarps * kTileRows * (8 * kTiles + 1) * 4;
  static constexpr int kSharedBytes = kRingBytes + kExchangeBytes;
  // Blocks that a multiprocessor with 227 KiB of shared memory holds.
  static constexpr int kByShared = 227 * 1024 / (kSharedBytes + 1024);
  static constexpr int kBlocks = kByShared < 2 ? kByShared : 2;
};

// Grid: (blocks that share the tiles of all jobs, blocks of 8 * kTiles rows of x).
template <int kBits, bool kLarge, int kTiles, int kGroupBlocks>
__global__ void __launch_bounds__(IntegerLaunch<kBits, kLarge, kTiles, kGroupBlocks>::kThreads,
                                  IntegerLaunch<kBits, kLarge, kTiles, kGroupBlocks>::kBlocks)
    integer_kernel(const __grid_constant__ MatvecCall call, const __grid_constant__ IntegerRows x) {
  using Launch = IntegerLaunch<kBits, kLarge, kTiles, kGroupBlocks>;
  using Stage = typename Launch::Stage;
  constexpr int kFloats = integer_block_floats(32 * kGroupBlocks);
  extern __shared__ __align__(16) uint8_t shared[];
  const int first = static_cast<int>(blockIdx.y) * 8 * kTiles;
  uint8_t* ring = shared + threadIdx.x / 32 * Launch::kDepth * Stage::kBytes;
  const MatvecRange range = warp_stages<Stage>(call.cols);
  int tile = skip_empty_tiles(call, static_cast<int>(blockIdx.x), first);
  if (tile >= call.tiles) return;
  StageCursor<Stage, Launch::kRowGroups> cursor;
  cursor.tile = tile;
  cursor.stage = range.begin;
  cursor.find_source(call);
  for (int i = 0; i < Launch::kDepth; ++i) {
    cursor.issue(call, range, first, ring + i * Stage::kBytes);
  }
  let_next_kernel_start();
  wait_for_previous_kernel();  // weights do not depend on it, rows of x do
  int slot = 0;
  int in_job = 0;
  IntegerColumns columns[kTiles];
  IntegerBlock<kFloats> block;
  const auto begin_tile = [&](const MatvecJob& job) {
#pragma unroll
    for (int i = 0; i < kTiles; ++i) {
      columns[i] = find_integer_columns(x, job, first + 8 * i, kFloats);
    }
    if (range.begin < range.end) load_integer_block(columns[0], 2 * range.begin, block);
  };
  begin_tile(find_job(call, tile, &in_job));
  while (tile < call.tiles) {
    const MatvecJob& job = find_job(call, tile, &in_job);
    const int row0 = in_job * Launch::kTileRows;
    float total[Stage::kRowTiles][kTiles][4] = {};
    for (int stage = range.begin; stage < range.end; ++stage) {
      copy_async_wait<Launch::kDepth - 1>();
      __syncwarp();
      uint8_t* buffer = ring + slot * Stage::kBytes;
#pragma unroll 1
      for (int half = 0; half < 2; ++half) {
        const int index = 2 * stage + half;
#pragma unroll
        for (int i = 0; i < kTiles; ++i) {
          // The next block of x travels while this one is multiplied; past the end, an unused one.
          IntegerBlock<kFloats> next;
          load_integer_block(columns[(i + 1) % kTiles],
                             i + 1 < kTiles ? index : min(index + 1, 2 * range.end - 1), next);
#pragma unroll
          for (int part = 0; part < Stage::kRowTiles; ++part) {
            compute_half<Stage, kGroupBlocks>(buffer, part, half, block, total[part][i]);
          }
          block = next;
        }
      }
      __syncwarp();
      cursor.issue(call, range, first, buffer);
      slot = slot + 1 == Launch::kDepth ? 0 : slot + 1;
    }
    // The next tile's first block of x travels while this one is reduced.
    tile = skip_empty_tiles(call, tile + static_cast<int>(gridDim.x), first);
    if (tile < call.tiles) begin_tile(find_job(call, tile, &in_job));
    reduce_and_store<Launch::kRowGroups, Stage::kRowTiles, kTiles>(
        job, row0, first, total, reinterpret_cast<float*>(shared + Launch::kRingBytes));
  }
}

}  // namespace motley::cuda
