// Prefill attention over a bfloat16 cache: tiles of rows against tiles of keys, running softmax.
//
// A warp owns 16 (token, query head) pairs that share a key/value head. Keys go by in tiles from
// the shard's first token on, whatever the segment, and a tile that a row does not see leaves it
// unchanged to the bit, so a row does not depend on the chunk it arrived in (R5).
#pragma once

#include "ops/cuda/device_math.cuh"
#include "ops/cuda/tensor_core.cuh"

namespace motley::cuda {

struct TilesCall {
  const float* q;
  int64_t q_stride;
  float* out;
  int64_t out_stride;
  float* lse;
  int64_t lse_stride;
  const std::byte* const* pages;
  const int32_t* visible;  // tokens that each row of the segment sees
  int32_t first_row;
  int32_t rows;
  int group;  // query heads per key/value head, a divisor of 16
  int tokens_per_page;
  float scale_log2;  // score scale * log2(e)
};

template <int kDim, int kWarps, int kKeys>
struct TilesShape {
  static constexpr int kThreads = 32 * kWarps;
  static constexpr int kRowBytes = 2 * kDim;
  static constexpr int kQueryBytes = 16 * kWarps * kRowBytes;
  static constexpr int kTileBytes = kKeys * kRowBytes;  // of keys, or of values
  static constexpr int kSharedBytes = kQueryBytes + 4 * kTileBytes;
};

// Byte offset of a 16-byte chunk, swizzled against bank conflicts of ldmatrix.
template <int kDim>
__device__ inline int tile_offset(int row, int chunk) {
  return row * 2 * kDim + ((chunk ^ (row & 7)) * 16);
}

// (token, query head) pairs [first_row, first_row + rows) of a tile, scaled, by kThreads threads.
// place(pair, chunk): where 16 bytes go.
template <int kDim, int kThreads, typename Place>
__device__ inline void load_queries(const TilesCall& call, int first_token, int kv_head,
                                    int first_row, int rows, Place place) {
  constexpr int kChunks = kDim / 8;
  for (int i = static_cast<int>(threadIdx.x) % kThreads; i < rows * kChunks; i += kThreads) {
    const int m = first_row + i / kChunks;
    const int chunk = i % kChunks;
    const int token = first_token + m / call.group;
    uint32_t pairs[4] = {0, 0, 0, 0};
    if (token < call.rows) {
      const float* q = call.q + (call.first_row + token) * call.q_stride +
                       (int64_t{kv_head} * call.group + m % call.group) * kDim + chunk * 8;
#pragma unroll
      for (int j = 0; j < 4; ++j) {
        pairs[j] = pack_bf16(q[2 * j] * call.scale_log2, q[2 * j + 1] * call.scale_log2);
      }
    }
    *reinterpret_cast<uint4*>(place(m, chunk)) = make_uint4(pairs[0], pairs[1], pairs[2], pairs[3]);
  }
}

// Keys and values [first, first + kKeys) into `target`; zeros from `limit` on.
template <int kDim, int kWarps, int kKeys>
__device__ inline void issue_tile(const TilesCall& call, int kv_head, int first, int limit,
                                  uint8_t* target) {
  using Shape = TilesShape<kDim, kWarps, kKeys>;
  const int64_t plane = int64_t{call.tokens_per_page} * kDim;
  for (int i = static_cast<int>(threadIdx.x); i < kKeys * kDim / 8; i += Shape::kThreads) {
    const int key = i / (kDim / 8);
    const int chunk = i % (kDim / 8);
    const int token = min(first + key, limit - 1);
    const auto* page =
        reinterpret_cast<const __nv_bfloat16*>(call.pages[token / call.tokens_per_page]);
    const __nv_bfloat16* source =
        page + 2 * kv_head * plane + int64_t{token % call.tokens_per_page} * kDim + chunk * 8;
    const int valid = first + key < limit ? 16 : 0;
    copy_async_16(target + tile_offset<kDim>(key, chunk), source, valid);
    copy_async_16(target + Shape::kTileBytes + tile_offset<kDim>(key, chunk), source + plane,
                  valid);
  }
}

template <int kDim, int kKeys>
__device__ inline void tile_scores(uint32_t queries, uint32_t keys, float (&s)[kKeys / 8][4]) {
  const int lane = static_cast<int>(threadIdx.x) % 32;
  const int warp = static_cast<int>(threadIdx.x) / 32;
#pragma unroll
  for (int n = 0; n < kKeys / 8; ++n) {
#pragma unroll
    for (int i = 0; i < 4; ++i) s[n][i] = 0;
  }
#pragma unroll 4
  for (int step = 0; step < kDim / 16; ++step) {
    uint32_t a[4];
    const int row = warp * 16 + lane % 16;
    load_matrix_x4(a,
                   queries + static_cast<uint32_t>(tile_offset<kDim>(row, 2 * step + lane / 16)));
#pragma unroll
    for (int n = 0; n < kKeys / 16; ++n) {
      uint32_t b[4];
      const int key = n * 16 + lane / 16 * 8 + lane % 8;
      load_matrix_x4(b,
                     keys + static_cast<uint32_t>(tile_offset<kDim>(key, 2 * step + lane / 8 % 2)));
      mma_bf16(s[2 * n], a[0], a[1], a[2], a[3], b[0], b[1]);
      mma_bf16(s[2 * n + 1], a[0], a[1], a[2], a[3], b[2], b[3]);
    }
  }
}

// Running softmax of the two rows that a lane holds.
struct RunningRows {
  float maximum[2] = {-INFINITY, -INFINITY};
  float sum[2] = {0, 0};
  int visible[2];
};

__device__ inline float quad_max(float value) {
  value = fmaxf(value, __shfl_xor_sync(kFullWarp, value, 1));
  return fmaxf(value, __shfl_xor_sync(kFullWarp, value, 2));
}
__device__ inline float quad_sum(float value) {
  value += __shfl_xor_sync(kFullWarp, value, 1);
  return value + __shfl_xor_sync(kFullWarp, value, 2);
}

// Scores to probabilities; `out` is rescaled to the new maximum.
template <int kDim, int kKeys>
__device__ inline void tile_softmax(int first, RunningRows& rows, float (&s)[kKeys / 8][4],
                                    float (&out)[kDim / 8][4]) {
  const int lane = static_cast<int>(threadIdx.x) % 32;
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    float maximum = rows.maximum[half];
#pragma unroll
    for (int n = 0; n < kKeys / 8; ++n) {
#pragma unroll
      for (int j = 0; j < 2; ++j) {
        const int key = first + n * 8 + lane % 4 * 2 + j;
        float& score = s[n][2 * half + j];
        score = key < rows.visible[half] ? score : -INFINITY;
        maximum = fmaxf(maximum, score);
      }
    }
    maximum = quad_max(maximum);
    const float base = maximum == -INFINITY ? 0.0f : maximum;
    const float rescale = exp2f(rows.maximum[half] - base);
    float sum = 0;
#pragma unroll
    for (int n = 0; n < kKeys / 8; ++n) {
#pragma unroll
      for (int j = 0; j < 2; ++j) {
        float& score = s[n][2 * half + j];
        score = exp2f(score - base);
        sum += score;
      }
    }
    rows.sum[half] = rows.sum[half] * rescale + quad_sum(sum);
    rows.maximum[half] = maximum;
#pragma unroll
    for (int n = 0; n < kDim / 8; ++n) {
      out[n][2 * half] *= rescale;
      out[n][2 * half + 1] *= rescale;
    }
  }
}

template <int kDim, int kKeys>
__device__ inline void tile_values(uint32_t values, const float (&s)[kKeys / 8][4],
                                   float (&out)[kDim / 8][4]) {
  const int lane = static_cast<int>(threadIdx.x) % 32;
#pragma unroll
  for (int step = 0; step < kKeys / 16; ++step) {
    const uint32_t a[4] = {pack_bf16(s[2 * step][0], s[2 * step][1]),
                           pack_bf16(s[2 * step][2], s[2 * step][3]),
                           pack_bf16(s[2 * step + 1][0], s[2 * step + 1][1]),
                           pack_bf16(s[2 * step + 1][2], s[2 * step + 1][3])};
#pragma unroll
    for (int n = 0; n < kDim / 16; ++n) {
      uint32_t b[4];
      const int key = step * 16 + lane % 16;
      load_matrix_x4_transposed(
          b, values + static_cast<uint32_t>(tile_offset<kDim>(key, 2 * n + lane / 16)));
      mma_bf16(out[2 * n], a[0], a[1], a[2], a[3], b[0], b[1]);
      mma_bf16(out[2 * n + 1], a[0], a[1], a[2], a[3], b[2], b[3]);
    }
  }
}

template <int kDim>
__device__ inline void store_tile_rows(const TilesCall& call, int first_token, int kv_head,
                                       const RunningRows& rows, const float (&out)[kDim / 8][4]) {
  constexpr float kLn2 = 0.69314718055994531f;
  const int lane = static_cast<int>(threadIdx.x) % 32;
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    const int m = static_cast<int>(threadIdx.x) / 32 * 16 + lane / 4 + 8 * half;
    const int token = first_token + m / call.group;
    if (token >= call.rows) continue;
    const int64_t row = call.first_row + token;
    const int head = kv_head * call.group + m % call.group;
    const float scale = rows.sum[half] > 0 ? 1.0f / rows.sum[half] : 0.0f;
    float* target = call.out + row * call.out_stride + int64_t{head} * kDim + lane % 4 * 2;
#pragma unroll
    for (int n = 0; n < kDim / 8; ++n) {
      *reinterpret_cast<float2*>(target + 8 * n) =
          make_float2(out[n][2 * half] * scale, out[n][2 * half + 1] * scale);
    }
    if (lane % 4 == 0) {
      call.lse[row * call.lse_stride + head] =
          rows.sum[half] > 0 ? rows.maximum[half] * kLn2 + logf(rows.sum[half]) : -INFINITY;
    }
  }
}

// Grid: (tiles of rows, longest first; kv heads).
template <int kDim, int kWarps, int kKeys>
__global__ void __launch_bounds__(32 * kWarps, 1)
    attend_tiles_kernel(const __grid_constant__ TilesCall call) {
  using Shape = TilesShape<kDim, kWarps, kKeys>;
  extern __shared__ __align__(128) uint8_t shared[];
  const int tokens = 16 * kWarps / call.group;
  const int first_token = static_cast<int>(gridDim.x - 1 - blockIdx.x) * tokens;
  const int kv_head = static_cast<int>(blockIdx.y);
  const int limit = call.visible[min(first_token + tokens, call.rows) - 1];
  const int tiles = (limit + kKeys - 1) / kKeys;
  uint8_t* ring = shared + Shape::kQueryBytes;
  if (tiles > 0) issue_tile<kDim, kWarps, kKeys>(call, kv_head, 0, limit, ring);
  copy_async_commit();
  load_queries<kDim, Shape::kThreads>(
      call, first_token, kv_head, 0, 16 * kWarps,
      [&](int m, int chunk) { return shared + tile_offset<kDim>(m, chunk); });
  RunningRows rows;
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    const int m =
        static_cast<int>(threadIdx.x) / 32 * 16 + static_cast<int>(threadIdx.x) % 32 / 4 + 8 * half;
    rows.visible[half] = call.visible[min(first_token + m / call.group, call.rows - 1)];
  }
  float out[kDim / 8][4] = {};
  for (int tile = 0; tile < tiles; ++tile) {
    uint8_t* current = ring + tile % 2 * 2 * Shape::kTileBytes;
    if (tile + 1 < tiles) {
      issue_tile<kDim, kWarps, kKeys>(call, kv_head, (tile + 1) * kKeys, limit,
                                      ring + (tile + 1) % 2 * 2 * Shape::kTileBytes);
    }
    copy_async_commit();
    copy_async_wait<1>();
    __syncthreads();
    float s[kKeys / 8][4];
    tile_scores<kDim, kKeys>(shared_address(shared), shared_address(current), s);
    tile_softmax<kDim, kKeys>(tile * kKeys, rows, s, out);
    tile_values<kDim, kKeys>(shared_address(current + Shape::kTileBytes), s, out);
    __syncthreads();
  }
  store_tile_rows<kDim>(call, first_token, kv_head, rows, out);
}

}  // namespace motley::cuda
