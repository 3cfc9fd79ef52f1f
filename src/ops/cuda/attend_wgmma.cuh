// Prefill attention on Hopper: as attend_tiles.cuh, with the products as wgmma.
//
// Two warpgroups hold 64 (token, query head) pairs each and a third one loads keys and values ahead
// for both. A warpgroup's values product and its next scores run back to back while the other one
// is in its softmax. Rows are as independent of each other as in the other kernel (R5).
#pragma once

#include "ops/cuda/attend_tiles.cuh"
#include "ops/cuda/wgmma.cuh"

namespace motley::cuda {

inline constexpr int kAttendThreads = 384;
inline constexpr int kAttendRows = 128;    // (token, query head) pairs
inline constexpr int kAttendLoaders = 64;  // threads that load keys, and as many for values
inline constexpr int kAttendMultipliers = 256;
inline constexpr int kTileKeys = 64;

// Shared memory: queries, then two slots of keys and two of values. Every matrix is in pieces of 64
// dims: [piece][row][128 bytes], 16-byte chunks swizzled by row % 8.
template <int kDim>
struct AttendShape {
  static constexpr int kPieces = kDim / 64;
  static constexpr int kQueryBytes = kAttendRows * kDim * 2;
  static constexpr int kTileBytes = kTileKeys * kDim * 2;
  static constexpr int kSharedBytes = kQueryBytes + 4 * kTileBytes + 1024;
};

__device__ inline uint32_t piece_offset(int rows, int row, int chunk) {
  return static_cast<uint32_t>(chunk / 8 * rows * 128 + row * 128 +
                               (((chunk % 8) ^ (row & 7)) * 16));
}

// Barriers: of slot s, keys have landed, keys are used, values have landed, values are used.
struct AttendBarriers {
  uint32_t first;
  __device__ uint32_t keys_full(int slot) const { return at(0, slot); }
  __device__ uint32_t keys_empty(int slot) const { return at(1, slot); }
  __device__ uint32_t values_full(int slot) const { return at(2, slot); }
  __device__ uint32_t values_empty(int slot) const { return at(3, slot); }
  __device__ uint32_t at(int kind, int slot) const {
    return first + static_cast<uint32_t>(kind * 2 + slot) * 8;
  }
};

// Keys (plane 0) or values (plane 1) [first, first + kTileKeys); zeros from `limit` on.
template <int kDim>
__device__ inline void issue_plane(const TilesCall& call, int kv_head, int plane, int first,
                                   int limit, uint8_t* target) {
  constexpr int kChunks = kDim / 8;
  constexpr int kStep = kAttendLoaders / kChunks;
  const int thread = static_cast<int>(threadIdx.x) % kAttendLoaders;
  const int chunk = thread % kChunks;
  const int64_t at =
      (2 * kv_head + plane) * int64_t{call.tokens_per_page} * kDim + int64_t{chunk} * 8;
  const auto page_of = [&](int token) {
    return reinterpret_cast<const __nv_bfloat16*>(call.pages[token / call.tokens_per_page]) + at;
  };
  if (call.tokens_per_page % kTileKeys == 0 && first + kTileKeys <= limit) {
    const __nv_bfloat16* source =
        page_of(first) + int64_t{first % call.tokens_per_page + thread / kChunks} * kDim;
#pragma unroll
    for (int key = 0; key < kTileKeys; key += kStep) {
      copy_async_16(target + piece_offset(kTileKeys, key + thread / kChunks, chunk),
                    source + key * kDim, 16);
    }
    return;
  }
#pragma unroll 1
  for (int key = thread / kChunks; key < kTileKeys; key += kStep) {
    const int token = min(first + key, limit - 1);
    copy_async_16(target + piece_offset(kTileKeys, key, chunk),
                  page_of(token) + int64_t{token % call.tokens_per_page} * kDim,
                  first + key < limit ? 16 : 0);
  }
}

// Half of the loading warpgroup, for keys or for values.
template <int kDim>
__device__ inline void load_tiles(const TilesCall& call, int kv_head, int limit, int tiles,
                                  uint8_t* slots, const AttendBarriers& barriers) {
  const int plane = (static_cast<int>(threadIdx.x) - kAttendMultipliers) / kAttendLoaders;
  for (int tile = 0; tile < tiles; ++tile) {
    const int slot = tile % 2;
    barrier_wait(plane == 0 ? barriers.keys_empty(slot) : barriers.values_empty(slot),
                 tile / 2 % 2 ^ 1);
    issue_plane<kDim>(call, kv_head, plane, tile * kTileKeys, limit,
                      slots + (2 * slot + plane) * AttendShape<kDim>::kTileBytes);
    copy_async_commit();
    copy_async_wait<0>();
    fence_for_wgmma();
    barrier_arrive(plane == 0 ? barriers.keys_full(slot) : barriers.values_full(slot));
  }
}

__device__ inline float fast_exp2(float x) {
  float result;
  asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(result) : "f"(x));
  return result;
}

// Scores of a tile to probabilities; `out` is rescaled to the new maximum. kMasked: some row does
// not see every key.
template <int kDim, bool kMasked>
__device__ inline void softmax_tile(int first, RunningRows& rows, float (&s)[kTileKeys / 2],
                                    float (&out)[kDim / 2]) {
  const int lane = static_cast<int>(threadIdx.x) % 32;
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    float maximum = rows.maximum[half];
#pragma unroll
    for (int n = 0; n < kTileKeys / 4; ++n) {
      float& score = s[n / 2 * 4 + 2 * half + n % 2];
      if constexpr (kMasked) {
        const int key = first + n / 2 * 8 + lane % 4 * 2 + n % 2;
        score = key < rows.visible[half] ? score : -INFINITY;
      }
      maximum = fmaxf(maximum, score);
    }
    maximum = quad_max(maximum);
    const float base = maximum == -INFINITY ? 0.0f : maximum;
    const float rescale = fast_exp2(rows.maximum[half] - base);
    float sum = 0;
#pragma unroll
    for (int n = 0; n < kTileKeys / 4; ++n) {
      float& score = s[n / 2 * 4 + 2 * half + n % 2];
      score = fast_exp2(score - base);
      sum += score;
    }
    rows.sum[half] = rows.sum[half] * rescale + quad_sum(sum);
    rows.maximum[half] = maximum;
#pragma unroll
    for (int n = 0; n < kDim / 4; ++n) out[n / 2 * 4 + 2 * half + n % 2] *= rescale;
  }
}

template <int kDim>
__device__ inline void issue_scores(uint32_t queries, uint32_t keys, float (&s)[kTileKeys / 2]) {
#pragma unroll
  for (int step = 0; step < kDim / 16; ++step) {
    const auto in_piece = static_cast<uint32_t>(step % 4 * 32);
    const auto piece = static_cast<uint32_t>(step / 4);
    wgmma_shared(s, wgmma_descriptor(queries + piece * kAttendRows * 128 + in_piece),
                 wgmma_descriptor(keys + piece * kTileKeys * 128 + in_piece), step > 0 ? 1 : 0);
  }
}

template <int kDim>
__device__ inline void issue_values(const uint32_t (&p)[kTileKeys / 4], uint32_t values,
                                    float (&out)[kDim / 2]) {
#pragma unroll
  for (int step = 0; step < kTileKeys / 16; ++step) {
    wgmma<true>(out, p + 4 * step,
                values_descriptor(values + static_cast<uint32_t>(step) * 2048, kTileKeys * 128), 1);
  }
}

template <int kDim>
__device__ inline void store_wgmma_rows(const TilesCall& call, int first_token, int kv_head,
                                        const RunningRows& rows, const float (&out)[kDim / 2]) {
  float tiles[kDim / 8][4];
#pragma unroll
  for (int i = 0; i < kDim / 2; ++i) tiles[i / 4][i % 4] = out[i];
  store_tile_rows<kDim>(call, first_token, kv_head, rows, tiles);
}

// A multiplying warpgroup.
template <int kDim>
__device__ inline void multiply_tiles(const TilesCall& call, int first_token, int kv_head,
                                      int tiles, uint8_t* shared, const AttendBarriers& barriers) {
  using Shape = AttendShape<kDim>;
  const int warpgroup = static_cast<int>(threadIdx.x) / 128;
  const bool speaks = threadIdx.x % 32 == 0;
  load_queries<kDim, 128>(call, first_token, kv_head, 64 * warpgroup, 64, [&](int m, int chunk) {
    return shared + piece_offset(kAttendRows, m, chunk);
  });
  fence_for_wgmma();
  asm volatile("bar.sync %0, 128;" ::"r"(warpgroup + 1) : "memory");
  RunningRows rows;
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    const int m =
        static_cast<int>(threadIdx.x) / 32 * 16 + static_cast<int>(threadIdx.x) % 32 / 4 + 8 * half;
    rows.visible[half] = call.visible[min(first_token + m / call.group, call.rows - 1)];
  }
  const int all_see = call.visible[min(first_token, call.rows - 1)];
  const uint32_t queries = shared_address(shared) + static_cast<uint32_t>(warpgroup) * 64 * 128;
  const uint32_t slots = shared_address(shared) + Shape::kQueryBytes;
  float out[kDim / 2];
#pragma unroll
  for (int i = 0; i < kDim / 2; ++i) out[i] = 0;
  float s[kTileKeys / 2];
  if (tiles > 0) {
    barrier_wait(barriers.keys_full(0), 0);
    wgmma_fence();
    issue_scores<kDim>(queries, slots, s);
    wgmma_commit();
    wgmma_wait<0>();
    if (speaks) barrier_arrive(barriers.keys_empty(0));
  }
  for (int tile = 0; tile < tiles; ++tile) {
    if ((tile + 1) * kTileKeys <= all_see) {
      softmax_tile<kDim, false>(tile * kTileKeys, rows, s, out);
    } else {
      softmax_tile<kDim, true>(tile * kTileKeys, rows, s, out);
    }
    uint32_t p[kTileKeys / 4];
#pragma unroll
    for (int i = 0; i < kTileKeys / 4; ++i) p[i] = pack_bf16(s[2 * i], s[2 * i + 1]);
    const int slot = tile % 2;
    const bool more = tile + 1 < tiles;
    barrier_wait(barriers.values_full(slot), tile / 2 % 2);
    if (more) barrier_wait(barriers.keys_full(slot ^ 1), (tile + 1) / 2 % 2);
    wgmma_fence();
    issue_values<kDim>(p, slots + static_cast<uint32_t>((2 * slot + 1) * Shape::kTileBytes), out);
    // After the last tile these scores are of old keys and nobody looks at them.
    issue_scores<kDim>(queries, slots + static_cast<uint32_t>(2 * (slot ^ 1) * Shape::kTileBytes),
                       s);
    wgmma_commit();
    wgmma_wait<0>();
    if (speaks) {
      barrier_arrive(barriers.values_empty(slot));
      if (more) barrier_arrive(barriers.keys_empty(slot ^ 1));
    }
  }
  store_wgmma_rows<kDim>(call, first_token, kv_head, rows, out);
}

// Grid: (tiles of rows, longest first; kv heads).
template <int kDim>
__global__ void __launch_bounds__(kAttendThreads, 1)
    attend_wgmma_kernel(const __grid_constant__ TilesCall call) {
#if defined(__CUDA_ARCH_FEAT_SM90_ALL)
  using Shape = AttendShape<kDim>;
  __shared__ uint64_t barrier_words[8];
  extern __shared__ uint8_t storage[];
  uint8_t* shared = storage + (1024 - shared_address(storage) % 1024) % 1024;
  const AttendBarriers barriers{shared_address(barrier_words)};
  if (threadIdx.x == 0) {
    for (int slot = 0; slot < 2; ++slot) {
      barrier_init(barriers.keys_full(slot), kAttendLoaders);
      barrier_init(barriers.values_full(slot), kAttendLoaders);
      barrier_init(barriers.keys_empty(slot), kAttendMultipliers / 32);
      barrier_init(barriers.values_empty(slot), kAttendMultipliers / 32);
    }
    barrier_init_done();
  }
  __syncthreads();
  const int tokens = kAttendRows / call.group;
  const int first_token = static_cast<int>(gridDim.x - 1 - blockIdx.x) * tokens;
  const int kv_head = static_cast<int>(blockIdx.y);
  const int limit = call.visible[min(first_token + tokens, call.rows) - 1];
  const int tiles = (limit + kTileKeys - 1) / kTileKeys;
  if (threadIdx.x >= kAttendMultipliers) {
    give_registers<40>();
    load_tiles<kDim>(call, kv_head, limit, tiles, shared + Shape::kQueryBytes, barriers);
  } else {
    take_registers<232>();
    multiply_tiles<kDim>(call, first_token, kv_head, tiles, shared, barriers);
  }
#endif
}

}  // namespace motley::cuda
