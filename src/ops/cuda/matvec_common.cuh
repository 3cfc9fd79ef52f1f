// What the kernels of matvec.h share: the call, the stream of weights, the last reduction.
#pragma once

#include "ops/cuda/device_math.cuh"
#include "ops/cuda/matvec.h"
#include "ops/cuda/tensor_core.cuh"
#include "ops/cuda/weight_units.cuh"

namespace motley::cuda {

inline constexpr int kMatvecWarps = 4;      // parts that K is cut into
inline constexpr int kMatvecTileRows = 16;  // rows of W of one mma

struct MatvecCall {
  MatvecJob inline_jobs[kMaxInlineJobs];
  const MatvecJob* jobs;  // device memory, or null: inline_jobs
  int job_count;
  int tiles_per_job;  // with `jobs`
  int tiles;          // of all jobs
  PreparedRows x;
  int cols;
  int group_size;
  int group_blocks_log2;  // log2(group_size / 32)
  bool scales_are_f16;
};

// What one warp holds of W at a time: 16 * kRowTiles rows of kCols codes, with a slot of kSlot
// bytes for the scales of each row and one for its biases.
template <int kBitsOf, int kRowTilesOf = 1, int kSlotOf = 16>
struct MatvecStage {
  static constexpr int kBits = kBitsOf;
  static constexpr int kRowTiles = kRowTilesOf;
  static constexpr int kSlot = kSlotOf;
  static constexpr int kRows = kMatvecTileRows * kRowTiles;
  static constexpr int kCols = kBits == kPlainBits ? 128 : 256;
  static constexpr int kRowBytes = kCols * kBits / 8;
  // Padding that spreads the eight rows of a fragment over the banks.
  static constexpr int kPitch = kRowBytes + (kBits == kPlainBits ? 64 : kBits == 8 ? 32 : 16);
  static constexpr int kCodeBytes = kRows * kPitch;
  static constexpr int kScaleBytes = kBits == kPlainBits ? 0 : 2 * kRows * kSlot;
  static constexpr int kBytes = kCodeBytes + kScaleBytes;
  static constexpr int kChunks = kRowBytes / 16;  // per row
  static constexpr int kCopies = kRows * kChunks / 32;
};

// Where a lane's share of every stage of a tile comes from, but for the stage itself.
struct StageSource {
  const uint8_t* codes;  // of the first row of the tile
  const uint8_t* scale;  // lanes 0..15: scales of the first row, 16..31: its biases
  uint32_t code_stride;
  uint32_t scale_stride;
  int last;  // rows past it repeat it: their results are not stored
  int row_bytes;
  int scale_bytes;  // of one row
  int stage_scale_bytes;
};

template <typename Stage>
__device__ inline StageSource find_stage_source(const MatvecCall& call, const MatvecJob& job,
                                                int row0) {
  StageSource source;
  row0 = min(row0, job.rows - 1);  // a warp past the end has nothing to store, only to keep in step
  source.codes = job.codes + row0 * job.code_stride;
  source.code_stride = static_cast<uint32_t>(job.code_stride);
  source.last = job.rows - 1 - row0;
  source.row_bytes = static_cast<int>(static_cast<int64_t>(call.cols) * Stage::kBits / 8);
  if constexpr (Stage::kBits != kPlainBits) {
    source.scale = (threadIdx.x % 32 < 16 ? job.scales : job.biases) + row0 * job.scale_stride;
    source.scale_stride = static_cast<uint32_t>(job.scale_stride);
    source.scale_bytes = 2 * call.cols / call.group_size;
    source.stage_scale_bytes = 2 * Stage::kCols / call.group_size;
  }
  return source;
}

template <typename Stage>
__device__ inline void issue_scales(const StageSource& source, int stage, uint8_t* target) {
  const int lane = static_cast<int>(threadIdx.x) % 32;
  const int first = stage * source.stage_scale_bytes;
  const bool valid = first < source.scale_bytes;
#pragma unroll
  for (int tile = 0; tile < Stage::kRowTiles; ++tile) {
    const auto row = static_cast<uint32_t>(min(tile * 16 + lane % 16, source.last));
    const uint8_t* scale = source.scale + row * source.scale_stride + (valid ? first : 0);
    uint8_t* slot = target + Stage::kCodeBytes + (tile * 32 + lane) * Stage::kSlot;
    // Where slots are as short as they can be, their size says what a stage needs.
    if (Stage::kSlot == 8 || (Stage::kSlot == 16 && source.stage_scale_bytes == 8)) {
      copy_async_small<8>(slot, scale, valid);
    } else if (Stage::kSlot == 4 || (Stage::kSlot == 16 && source.stage_scale_bytes == 4)) {
      copy_async_small<4>(slot, scale, valid);
    } else if constexpr (Stage::kSlot == 16) {
      copy_async_small<16>(slot, scale, valid);
    }
  }
}

template <typename Stage>
__device__ inline void issue_stage(const StageSource& source, int stage, uint8_t* target) {
  constexpr bool kEven = 32 % Stage::kChunks == 0;
  const int lane = static_cast<int>(threadIdx.x) % 32;
  const int offset = stage * Stage::kRowBytes;
  const bool whole = offset + Stage::kRowBytes <= source.row_bytes;
#pragma unroll
  for (int i = 0; i < Stage::kCopies; ++i) {
    const int row = kEven ? lane / Stage::kChunks + i * (32 / Stage::kChunks)
                          : (lane + 32 * i) / Stage::kChunks;
    const int at = (kEven ? lane : lane + 32 * i) % Stage::kChunks * 16;
    const auto from = static_cast<uint32_t>(min(row, source.last)) * source.code_stride;
    const int left = whole ? 16 : min(max(source.row_bytes - offset - at, 0), 16);
    copy_async_16(target + row * Stage::kPitch + at,
                  source.codes + from + (left > 0 ? offset + at : 0), left);
  }
  if constexpr (Stage::kBits != kPlainBits) issue_scales<Stage>(source, stage, target);
}

__device__ inline float scale_at(const uint8_t* slot, int group, bool is_f16) {
  const uint16_t bits = reinterpret_cast<const uint16_t*>(slot)[group];
  return is_f16 ? __half2float(__ushort_as_half(bits)) : __uint_as_float(uint32_t{bits} << 16);
}

__device__ inline int matvec_x_row(const MatvecJob& job, int i) {
  return job.x_ids == nullptr ? job.first_x + i : job.x_ids[i];
}

// Adds the warps' parts in order and stores the tile's rows, from row0 on, of y. Warps are in
// kRowGroups groups of kMatvecWarps parts of K; each has 16 * kRowTiles rows.
template <int kRowGroups, int kRowTiles, int kTiles>
__device__ inline void reduce_and_store(const MatvecJob& job, int row0, int first,
                                        const float (&total)[kRowTiles][kTiles][4], float* shared) {
  constexpr int kRows = kMatvecTileRows * kRowTiles * kRowGroups;
  constexpr int kPitch = 8 * kTiles + 1;
  const int lane = static_cast<int>(threadIdx.x) % 32;
  const int warp = static_cast<int>(threadIdx.x) / 32;
  float* mine =
      shared +
      (warp % kMatvecWarps * kRows + warp / kMatvecWarps * kMatvecTileRows * kRowTiles) * kPitch;
  __syncthreads();  // the last exchange has been read, or the pipeline's buffers become this one
#pragma unroll
  for (int part = 0; part < kRowTiles; ++part) {
#pragma unroll
    for (int tile = 0; tile < kTiles; ++tile) {
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        const int row = part * 16 + lane / 4 + 8 * (i / 2);
        mine[row * kPitch + tile * 8 + lane % 4 * 2 + i % 2] = total[part][tile][i];
      }
    }
  }
  __syncthreads();
#pragma unroll
  for (int j = 0; j < kTiles * kRowTiles; ++j) {
    const int element = static_cast<int>(threadIdx.x) + j * 32 * kMatvecWarps * kRowGroups;
    const int row = element % kRows;
    const int column = element / kRows;
    const int i = first + column;
    if (i >= job.count || row0 + row >= job.rows) continue;
    float sum = 0;
#pragma unroll
    for (int part = 0; part < kMatvecWarps; ++part) {
      sum += shared[(part * kRows + row) * kPitch + column];
    }
    const int out = job.out_ids == nullptr ? job.first_out + i : job.out_ids[i];
    job.y[out * job.y_stride + row0 + row] = sum;
  }
}

__device__ inline const MatvecJob& find_job(const MatvecCall& call, int tile, int* tile_in_job) {
  if (call.jobs != nullptr) {
    *tile_in_job = tile % call.tiles_per_job;
    return call.jobs[tile / call.tiles_per_job];
  }
  int index = 0;
  while (index + 1 < call.job_count && tile >= call.inline_jobs[index + 1].first_tile) ++index;
  *tile_in_job = tile - call.inline_jobs[index].first_tile;
  return call.inline_jobs[index];
}

// Stages [begin, end) of K that a warp computes.
struct MatvecRange {
  int begin;
  int end;
};

template <typename Stage>
__device__ inline MatvecRange warp_stages(int cols) {
  constexpr int kCols = Stage::kCols;
  const int stages = (cols + kCols - 1) / kCols;
  const int per_warp = (stages + kMatvecWarps - 1) / kMatvecWarps;
  const int begin = min(static_cast<int>(threadIdx.x) / 32 % kMatvecWarps * per_warp, stages);
  return {begin, min(begin + per_warp, stages)};
}

}  // namespace motley::cuda
