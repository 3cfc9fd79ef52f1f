// What the kernels of matvec.h share: the call, the stream of weights, the last reduction.
#pragma once

#include "ops/cuda/device_math.cuh"
#include "ops/cuda/matvec.h"
#include "ops/cuda/tensor_core.cuh"
#include "ops/cuda/weight_units.cuh"

namespace motley::cuda {

inline constexpr int kMatvecWarps = 4;      // parts that K is cut into
inline constexpr int kMatvecTileRows = 16;  // rows of W per block

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

// What one warp holds of W at a time: 16 rows of kCols codes, with their scales and biases.
template <int kBits>
struct MatvecStage {
  static constexpr int kCols = kBits == kPlainBits ? 128 : 256;
  static constexpr int kRowBytes = kCols * kBits / 8;
  // Padding that spreads the eight rows of a fragment over the banks.
  static constexpr int kPitch = kRowBytes + (kBits == kPlainBits ? 64 : kBits == 8 ? 32 : 16);
  static constexpr int kCodeBytes = kMatvecTileRows * kPitch;
  static constexpr int kScaleBytes = kBits == kPlainBits ? 0 : 2 * kMatvecTileRows * 16;
  static constexpr int kBytes = kCodeBytes + kScaleBytes;
  static constexpr int kDepth = 3;
  static constexpr int kSharedBytes = kMatvecWarps * kDepth * kBytes;
};

// Where a lane's share of every stage comes from and goes to, but for the stage itself.
template <int kBits>
struct StageSource {
  using Stage = MatvecStage<kBits>;
  static constexpr int kChunks = Stage::kRowBytes / 16;  // per row
  static constexpr int kCopies = kMatvecTileRows * kChunks / 32;

  const uint8_t* codes;  // of the first row of the tile
  const uint8_t* scale;  // lanes 0..15: scales of a row, 16..31: its biases
  uint32_t source[kCopies];
  uint32_t target[kCopies];
  int row_bytes;
  int scale_bytes;  // of one row
  int stage_scale_bytes;
};

// Rows past the last one repeat it: their results are not stored.
template <int kBits>
__device__ inline StageSource<kBits> find_stage_source(const MatvecCall& call, const MatvecJob& job,
                                                       int row0) {
  using Source = StageSource<kBits>;
  const int lane = static_cast<int>(threadIdx.x) % 32;
  const int last = job.rows - 1 - row0;
  Source source;
  source.codes = job.codes + row0 * job.code_stride;
#pragma unroll
  for (int i = 0; i < Source::kCopies; ++i) {
    const bool even = 32 % Source::kChunks == 0;
    const int row = even ? lane / Source::kChunks + i * (32 / Source::kChunks)
                         : (lane + 32 * i) / Source::kChunks;
    const int at = (even ? lane : lane + 32 * i) % Source::kChunks * 16;
    source.source[i] = static_cast<uint32_t>(min(row, last) * job.code_stride) + at;
    source.target[i] = static_cast<uint32_t>(row * Source::Stage::kPitch + at);
  }
  source.row_bytes = static_cast<int>(static_cast<int64_t>(call.cols) * kBits / 8);
  if constexpr (kBits != kPlainBits) {
    source.scale =
        (lane < 16 ? job.scales : job.biases) + (row0 + min(lane % 16, last)) * job.scale_stride;
    source.scale_bytes = 2 * call.cols / call.group_size;
    source.stage_scale_bytes = 2 * Source::Stage::kCols / call.group_size;
  }
  return source;
}

template <int kBits>
__device__ inline void issue_stage(const StageSource<kBits>& source, int stage, uint8_t* target) {
  using Source = StageSource<kBits>;
  const int offset = stage * Source::Stage::kRowBytes;
  const uint8_t* codes = source.codes + offset;
  if (offset + Source::Stage::kRowBytes <= source.row_bytes) {
#pragma unroll
    for (int i = 0; i < Source::kCopies; ++i) {
      copy_async_16(target + source.target[i], codes + source.source[i], 16);
    }
  } else {
#pragma unroll
    for (int i = 0; i < Source::kCopies; ++i) {
      const int at = static_cast<int>(source.target[i]) % Source::Stage::kPitch;
      const int left = min(max(source.row_bytes - offset - at, 0), 16);
      copy_async_16(target + source.target[i], left > 0 ? codes + source.source[i] : source.codes,
                    left);
    }
  }
  if constexpr (kBits != kPlainBits) {
    const int first = stage * source.stage_scale_bytes;
    const bool valid = first < source.scale_bytes;
    const uint8_t* scale = source.scale + (valid ? first : 0);
    uint8_t* slot = target + Source::Stage::kCodeBytes + threadIdx.x % 32 * 16;
    if (source.stage_scale_bytes == 8) {
      copy_async_small<8>(slot, scale, valid);
    } else if (source.stage_scale_bytes == 4) {
      copy_async_small<4>(slot, scale, valid);
    } else {
      copy_async_small<16>(slot, scale, valid);
    }
  }
}

__device__ inline float scale_at(const uint8_t* slot, int group, bool is_f16) {
  const uint16_t bits = reinterpret_cast<const uint16_t*>(slot)[group];
  return is_f16 ? __half2float(__ushort_as_half(bits)) : __uint_as_float(uint32_t{bits} << 16);
}

__device__ inline int matvec_x_row(const MatvecJob& job, int i) {
  return job.x_ids == nullptr ? job.first_x + i : job.x_ids[i];
}

// Adds the warps' parts in order and stores rows [row0, row0 + 16) of y.
template <int kTiles>
__device__ inline void reduce_and_store(const MatvecJob& job, int row0, int first,
                                        const float (&total)[kTiles][4], float* shared) {
  constexpr int kPitch = 8 * kTiles + 1;
  const int lane = static_cast<int>(threadIdx.x) % 32;
  const int warp = static_cast<int>(threadIdx.x) / 32;
  float* mine = shared + warp * kMatvecTileRows * kPitch;
  __syncthreads();  // the pipeline's buffers become the exchange
#pragma unroll
  for (int tile = 0; tile < kTiles; ++tile) {
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      const int row = lane / 4 + 8 * (i / 2);
      mine[row * kPitch + tile * 8 + lane % 4 * 2 + i % 2] = total[tile][i];
    }
  }
  __syncthreads();
#pragma unroll
  for (int j = 0; j < kTiles; ++j) {
    const int element = static_cast<int>(threadIdx.x) + j * 32 * kMatvecWarps;
    const int row = element % kMatvecTileRows;
    const int column = element / kMatvecTileRows;
    const int i = first + column;
    if (i >= job.count || row0 + row >= job.rows) continue;
    float sum = 0;
#pragma unroll
    for (int part = 0; part < kMatvecWarps; ++part) {
      sum += shared[(part * kMatvecTileRows + row) * kPitch + column];
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

template <int kBits>
__device__ inline MatvecRange warp_stages(int cols) {
  constexpr int kCols = MatvecStage<kBits>::kCols;
  const int stages = (cols + kCols - 1) / kCols;
  const int per_warp = (stages + kMatvecWarps - 1) / kMatvecWarps;
  const int begin = min(static_cast<int>(threadIdx.x) / 32 * per_warp, stages);
  return {begin, min(begin + per_warp, stages)};
}

}  // namespace motley::cuda
