// Decode attention, split along the cache: one block takes 256 tokens of one key/value head for
// all query heads that share it. Two-piece bfloat16 queries and probabilities keep the result at
// float32 quality over a bfloat16 cache; a float32 cache is split into two pieces as well.
#include "ops/cuda/attention_kernels.h"
#include "ops/cuda/device_math.cuh"
#include "ops/cuda/tensor_core.cuh"

namespace motley::cuda {
namespace {

constexpr int kWarps = 4;
constexpr int kHeads = 16;  // query heads of a block, padded
constexpr int kKeys = kAttendChunk;
constexpr int kScorePitch = kKeys + 4;
constexpr int kProbabilityPitch = kKeys + 8;  // bfloat16 elements

template <int kDim>
struct SplitShared {
  static constexpr int kQueryPitch = kDim + 32;  // bfloat16: rows 64 bytes apart modulo 128
  __nv_bfloat16 q[2][kHeads][kQueryPitch];       // high and low pieces
  float scores[kHeads][kScorePitch];
  __nv_bfloat16 p[2][kHeads][kProbabilityPitch];
  float row_max[kHeads];
  float row_sum[kHeads];
  const std::byte* pages[kKeys / 16 + 2];  // of the chunk's tokens
};

// kCount consecutive elements of the cache, as they lie there.
template <typename T, int kCount>
struct Raw {
  uint32_t words[kCount * sizeof(T) / 4];
};

template <typename T, int kCount>
__device__ inline void load_raw(const T* source, Raw<T, kCount>& raw) {
  constexpr int kWords = kCount * sizeof(T) / 4;
  if constexpr (kWords % 4 == 0) {
#pragma unroll
    for (int i = 0; i < kWords; i += 4) {
      *reinterpret_cast<uint4*>(raw.words + i) = *(reinterpret_cast<const uint4*>(source) + i / 4);
    }
  } else if constexpr (kWords == 2) {
    *reinterpret_cast<uint2*>(raw.words) = *reinterpret_cast<const uint2*>(source);
  } else {
    raw.words[0] = *reinterpret_cast<const uint32_t*>(source);
  }
}

// Elements 2 i, 2 i + 1 as a bfloat16 pair, and what rounding left of a float32 cache.
template <int kCount>
__device__ inline void pair_of(const Raw<__nv_bfloat16, kCount>& raw, int i, uint32_t* high,
                               uint32_t* low) {
  *high = raw.words[i];
  *low = 0;
}
template <int kCount>
__device__ inline void pair_of(const Raw<float, kCount>& raw, int i, uint32_t* high,
                               uint32_t* low) {
  split_bf16(__uint_as_float(raw.words[2 * i]), __uint_as_float(raw.words[2 * i + 1]), high, low);
}

// Element i of two tokens as a pair.
template <int kCount>
__device__ inline void pair_across(const Raw<__nv_bfloat16, kCount>& a,
                                   const Raw<__nv_bfloat16, kCount>& b, int i, uint32_t* high,
                                   uint32_t* low) {
  *high = __byte_perm(a.words[i / 2], b.words[i / 2], i % 2 == 0 ? 0x5410 : 0x7632);
  *low = 0;
}
template <int kCount>
__device__ inline void pair_across(const Raw<float, kCount>& a, const Raw<float, kCount>& b, int i,
                                   uint32_t* high, uint32_t* low) {
  split_bf16(__uint_as_float(a.words[i]), __uint_as_float(b.words[i]), high, low);
}

struct Block {
  AttendRow row;
  int kv_head;
  int group;      // query heads per key/value head
  int64_t first;  // first token of the chunk
  int keys;       // visible ones in it
};

template <typename T, typename Shared>
__device__ inline const T* key_at(const AttendCall& call, const Block& block, const Shared& shared,
                                  int key) {
  const int per_page = call.layout.tokens_per_page;
  const auto token = static_cast<uint32_t>(block.first) + static_cast<uint32_t>(key);
  const auto* page = reinterpret_cast<const T*>(
      shared.pages[token / per_page - static_cast<uint32_t>(block.first) / per_page]);
  const int64_t plane = int64_t{call.layout.tokens_per_page} * call.dim;
  return page + 2 * block.kv_head * plane + int64_t{token % per_page} * call.dim;
}

template <int kDim>
__device__ void load_pages(const AttendCall& call, const Block& block, SplitShared<kDim>& shared) {
  const int per_page = call.layout.tokens_per_page;
  const int64_t first = block.first / per_page;
  const int64_t last = (block.first + block.keys - 1) / per_page;
  const int64_t page = first + static_cast<int64_t>(threadIdx.x);
  if (page <= last) shared.pages[threadIdx.x] = block.row.pages[page];
}

template <int kDim>
__device__ void load_queries(const AttendCall& call, const Block& block,
                             SplitShared<kDim>& shared) {
  const float* q =
      call.q + block.row.row * call.q_stride + int64_t{block.kv_head} * block.group * kDim;
  for (int i = static_cast<int>(threadIdx.x) * 2; i < kHeads * kDim; i += 64 * kWarps) {
    const int head = i / kDim;
    uint32_t high = 0;
    uint32_t low = 0;
    if (head < block.group) split_bf16(q[i] * call.scale, q[i + 1] * call.scale, &high, &low);
    *reinterpret_cast<uint32_t*>(&shared.q[0][head][i % kDim]) = high;
    *reinterpret_cast<uint32_t*>(&shared.q[1][head][i % kDim]) = low;
  }
}

// Scores of 8 keys, [first, first + 8) of the chunk, against all heads.
template <typename T, int kDim>
__device__ void score_keys(const Block& block, SplitShared<kDim>& shared, int first,
                           const Raw<T, 8> (&keys)[kDim / 32]) {
  const int lane = static_cast<int>(threadIdx.x) % 32;
  const int g = lane / 4;
  const int t = lane % 4;
  float c[4] = {0, 0, 0, 0};
#pragma unroll
  for (int part = 0; part < kDim / 32; ++part) {
    uint32_t high[4];
    uint32_t low[4];
#pragma unroll
    for (int i = 0; i < 4; ++i) pair_of(keys[part], i, &high[i], &low[i]);
#pragma unroll
    for (int piece = 0; piece < 2; ++piece) {
      const int at = part * 32 + t * 8;
      const uint4 a = *reinterpret_cast<const uint4*>(&shared.q[piece][g][at]);
      const uint4 b = *reinterpret_cast<const uint4*>(&shared.q[piece][g + 8][at]);
      mma_bf16(c, a.x, b.x, a.y, b.y, high[0], high[1]);
      mma_bf16(c, a.z, b.z, a.w, b.w, high[2], high[3]);
      if (sizeof(T) == 4 && piece == 0) {
        mma_bf16(c, a.x, b.x, a.y, b.y, low[0], low[1]);
        mma_bf16(c, a.z, b.z, a.w, b.w, low[2], low[3]);
      }
    }
  }
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    const int column = first + 2 * t + i % 2;
    shared.scores[g + 8 * (i / 2)][column] = column < block.keys ? c[i] : -INFINITY;
  }
}

// All scores of the chunk: each warp takes two groups of eight keys at a time, so that enough loads
// are in flight.
template <typename T, int kDim>
__device__ void score_chunk(const AttendCall& call, const Block& block, SplitShared<kDim>& shared,
                            int padded) {
  constexpr int kTiles = sizeof(T) == 2 ? 2 : 1;
  const int lane = static_cast<int>(threadIdx.x) % 32;
  for (int first = static_cast<int>(threadIdx.x) / 32 * 8 * kTiles; first < padded;
       first += 8 * kTiles * kWarps) {
    Raw<T, 8> keys[kTiles][kDim / 32];
#pragma unroll
    for (int tile = 0; tile < kTiles; ++tile) {
      // A key beyond the visible ones reads the last visible one and is masked later.
      const int key = min(first + 8 * tile + lane / 4, block.keys - 1);
      const T* source = key_at<T>(call, block, shared, key) + lane % 4 * 8;
#pragma unroll
      for (int part = 0; part < kDim / 32; ++part) load_raw(source + part * 32, keys[tile][part]);
    }
#pragma unroll
    for (int tile = 0; tile < kTiles; ++tile) {
      score_keys<T, kDim>(block, shared, first + 8 * tile, keys[tile]);
    }
  }
}

// Eight threads per head: maximum, probabilities in two pieces, their sum.
template <int kDim>
__device__ void softmax_rows(SplitShared<kDim>& shared, int keys_padded) {
  const int head = static_cast<int>(threadIdx.x) / 8;
  const int part = static_cast<int>(threadIdx.x) % 8;
  float maximum = -INFINITY;
  for (int i = part; i < keys_padded; i += 8) maximum = fmaxf(maximum, shared.scores[head][i]);
  for (int offset = 4; offset > 0; offset /= 2) {
    maximum = fmaxf(maximum, __shfl_xor_sync(kFullWarp, maximum, offset));
  }
  float sum = 0;
  for (int i = 2 * part; i < keys_padded; i += 16) {
    const float a = expf(shared.scores[head][i] - maximum);
    const float b = expf(shared.scores[head][i + 1] - maximum);
    sum += a + b;
    uint32_t high;
    uint32_t low;
    split_bf16(a, b, &high, &low);
    *reinterpret_cast<uint32_t*>(&shared.p[0][head][i]) = high;
    *reinterpret_cast<uint32_t*>(&shared.p[1][head][i]) = low;
  }
  for (int offset = 4; offset > 0; offset /= 2) sum += __shfl_xor_sync(kFullWarp, sum, offset);
  if (part == 0) {
    shared.row_max[head] = maximum;
    shared.row_sum[head] = sum;
  }
}

// The values of the 4 tokens that a lane holds of a step of 16, kEach dims of each.
template <typename T, int kEach>
struct ValueStep {
  Raw<T, kEach> tokens[4];
};

template <typename T, int kDim>
__device__ inline void load_values(const AttendCall& call, const Block& block,
                                   const SplitShared<kDim>& shared, int step,
                                   ValueStep<T, kDim / 32>& values) {
  constexpr int kEach = kDim / 32;
  const int lane = static_cast<int>(threadIdx.x) % 32;
  const int64_t plane = int64_t{call.layout.tokens_per_page} * call.dim;
  const int dim0 = static_cast<int>(threadIdx.x) / 32 * (kDim / kWarps) + lane / 4 * kEach;
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    const int key = step + 2 * (lane % 4) + i % 2 + 8 * (i / 2);
    const int safe = min(key, block.keys - 1);
    load_raw(key_at<T>(call, block, shared, safe) + plane + dim0, values.tokens[i]);
  }
}

template <typename T, int kDim>
__device__ inline void weigh_step(const SplitShared<kDim>& shared, int step,
                                  const ValueStep<T, kDim / 32>& values, float (&c)[kDim / 32][4]) {
  const int lane = static_cast<int>(threadIdx.x) % 32;
  uint32_t p[2][4];
#pragma unroll
  for (int piece = 0; piece < 2; ++piece) {
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      p[piece][i] = *reinterpret_cast<const uint32_t*>(
          &shared.p[piece][lane / 4 + 8 * (i % 2)][step + 2 * (lane % 4) + 8 * (i / 2)]);
    }
  }
#pragma unroll
  for (int j = 0; j < kDim / 32; ++j) {
    uint32_t high[2];
    uint32_t low[2];
    pair_across(values.tokens[0], values.tokens[1], j, &high[0], &low[0]);
    pair_across(values.tokens[2], values.tokens[3], j, &high[1], &low[1]);
    mma_bf16(c[j], p[0][0], p[0][1], p[0][2], p[0][3], high[0], high[1]);
    mma_bf16(c[j], p[1][0], p[1][1], p[1][2], p[1][3], high[0], high[1]);
    if constexpr (sizeof(T) == 4) {
      mma_bf16(c[j], p[0][0], p[0][1], p[0][2], p[0][3], low[0], low[1]);
    }
  }
}

// out[head][dim] += p V for this warp's kDim / 4 dims, the next step's values in flight. Column g
// of tile j is dim g * kDim / 32 + j. A token beyond the visible ones repeats the last visible one
// under a probability of zero: memory past it may hold NaN.
template <typename T, int kDim>
__device__ void weigh_values(const AttendCall& call, const Block& block,
                             const SplitShared<kDim>& shared, float (&c)[kDim / 32][4]) {
  ValueStep<T, kDim / 32> values[2];
  load_values<T, kDim>(call, block, shared, 0, values[0]);
  for (int step = 0; step < block.keys; step += 32) {
    load_values<T, kDim>(call, block, shared, step + 16, values[1]);
    weigh_step<T, kDim>(shared, step, values[0], c);
    load_values<T, kDim>(call, block, shared, step + 32, values[0]);
    if (step + 16 < block.keys) weigh_step<T, kDim>(shared, step + 16, values[1], c);
  }
}

template <int kDim>
__device__ void store_part(const AttendCall& call, const Block& block,
                           const SplitShared<kDim>& shared, const float (&c)[kDim / 32][4]) {
  constexpr int kEach = kDim / 32;
  const int lane = static_cast<int>(threadIdx.x) % 32;
  const int warp = static_cast<int>(threadIdx.x) / 32;
  const bool whole = call.chunks == 1;
  const int64_t part = static_cast<int64_t>(blockIdx.z) * call.chunks + blockIdx.x;
  const int head0 = block.kv_head * block.group;
  float* out =
      whole ? call.out + block.row.row * call.out_stride : call.part_out + part * call.heads * kDim;
  float* lse =
      whole ? call.lse + block.row.row * call.lse_stride : call.part_lse + part * call.heads;
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    const int head = lane / 4 + 8 * (i / 2);
    if (head >= block.group) continue;
    const float scale = block.keys > 0 ? 1.0f / shared.row_sum[head] : 0.0f;
    const int dim = warp * (kDim / kWarps) + (2 * (lane % 4) + i % 2) * kEach;
#pragma unroll
    for (int j = 0; j < kEach; ++j) {
      out[int64_t{head0 + head} * kDim + dim + j] = c[j][i] * scale;
    }
  }
  const int head = static_cast<int>(threadIdx.x);
  if (head < block.group) {
    lse[head0 + head] =
        block.keys > 0 ? shared.row_max[head] + logf(shared.row_sum[head]) : -INFINITY;
  }
}

// Grid: (chunks, kv heads, rows).
template <typename T, int kDim>
__global__ void __launch_bounds__(32 * kWarps)
    split_kernel(const __grid_constant__ AttendCall call) {
  extern __shared__ __align__(16) uint8_t storage[];
  auto& shared = *reinterpret_cast<SplitShared<kDim>*>(storage);
  Block block;
  block.row = call.rows[blockIdx.z];
  block.kv_head = static_cast<int>(blockIdx.y);
  block.group = call.heads / call.kv_heads;
  block.first = static_cast<int64_t>(blockIdx.x) * kKeys;
  const int64_t left = block.row.visible - block.first;
  block.keys = static_cast<int>(left < 0 ? 0 : left > kKeys ? kKeys : left);
  float c[kDim / 32][4] = {};
  if (block.keys > 0) {
    const int padded = (block.keys + 15) / 16 * 16;
    load_pages(call, block, shared);
    load_queries<kDim>(call, block, shared);
    __syncthreads();
    score_chunk<T, kDim>(call, block, shared, padded);
    __syncthreads();
    softmax_rows<kDim>(shared, padded);
    __syncthreads();
    weigh_values<T, kDim>(call, block, shared, c);
  }
  store_part<kDim>(call, block, shared, c);
}

template <typename T, int kDim>
void launch(CudaStream& stream, const AttendCall& call, int64_t rows) {
  constexpr int kBytes = sizeof(SplitShared<kDim>);
  auto* kernel = split_kernel<T, kDim>;
  stream.note(cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, kBytes),
              "attend");
  const dim3 grid(static_cast<unsigned>(call.chunks), static_cast<unsigned>(call.kv_heads),
                  static_cast<unsigned>(rows));
  kernel<<<grid, 32 * kWarps, kBytes, stream.handle()>>>(call);
}

template <typename T>
void launch_dim(CudaStream& stream, const AttendCall& call, int64_t rows) {
  if (call.dim == 64) return launch<T, 64>(stream, call, rows);
  if (call.dim == 128) return launch<T, 128>(stream, call, rows);
  launch<T, 256>(stream, call, rows);
}

}  // namespace

bool attend_split_takes(const AttendCall& call) {
  const bool known_dim = call.dim == 64 || call.dim == 128 || call.dim == 256;
  return known_dim && call.heads / call.kv_heads <= kHeads && call.layout.tokens_per_page % 16 == 0;
}

void attend_split(CudaStream& stream, const AttendCall& call, int64_t rows) {
  if (call.layout.dtype == DType::kBf16) {
    launch_dim<__nv_bfloat16>(stream, call, rows);
  } else {
    launch_dim<float>(stream, call, rows);
  }
  stream.check_launch("attend (split)");
}

}  // namespace motley::cuda
