// What a block of the delta rule with a decay per key channel needs before the state is known
// (gated_delta_blocks.cuh).
//
// Keys fade row by row, in float32 and in the order of the rows, as ops/channel_delta.h has it: row
// i multiplies every key before it by its factors and then takes their products with its own key
// and query. So a row's bits do not depend on where the block was cut (R5), no factor exceeds 1,
// and the faded keys are what the carry holds.
#include "ops/cuda/channel_delta_call.cuh"
#include "ops/cuda/gated_delta_blocks.cuh"

namespace motley::cuda {
namespace {

constexpr int kThreads = 256;
constexpr int kWarps = kThreads / 32;
constexpr int kLanes = 16;                    // that share a row of keys
constexpr int kEach = kScanKey / 32;          // channels of a lane that loads a row
constexpr int kKeys = 4;                      // keys of a lane,
constexpr int kChannels = kScanKey / kLanes;  // and channels: 4 lane, .. and 64 + 4 lane, ..

struct Shared {
  float k[kDeltaBlock][kScanKey];
  float factors[kDeltaBlock][kScanKey];
  __nv_bfloat16 q[kDeltaBlock][kScanKey];  // a lane's channels side by side
  DeltaScores scores;
  DeltaGates gates;
};

struct Place {
  DeltaSegment segment;
  DeltaBlockRows block;
  int head;

  __device__ bool is_held(int i) const { return i < block.held; }
  __device__ bool is_fresh(int i) const { return i >= block.held && i < block.rows; }
  __device__ int64_t row(int i) const { return segment.first_row + block.done + i - block.held; }
};

__device__ int query_place(int channel) {
  return channel % 64 / 4 * kChannels + channel / 64 * 4 + channel % 4;
}

// What a lane reads of a row: channels lane, lane + 32, ..
struct RowParts {
  float q[kEach];
  float k[kEach];
  float a[kEach];
};

// channel_factor in a third of the instructions; a few units in the last place are less than the
// bfloat16 operands lose.
__device__ float fast_factor(float a, float rate, float lower_bound) {
  if (lower_bound < 0) return __expf(__fdividef(lower_bound, 1.0f + __expf(-rate * a)));
  return __expf(-rate * (a > 20.0f ? a : __logf(1.0f + __expf(a))));
}

__device__ void load_parts(const DeltaCall& call, const Place& place, int i, RowParts& parts) {
  const int lane = static_cast<int>(threadIdx.x) % 32;
  const int dim = call.shape.key_head_dim;
  const int64_t at = int64_t{place.head} * dim;
  const bool fresh = place.is_fresh(i);
  const int64_t row = fresh ? place.row(i) : place.segment.first_row;
  const float* q_in = call.qkv.row(row) + at;
  const float* k_in = place.is_held(i) ? place.segment.held_keys.row(i) + at
                                       : q_in + int64_t{call.shape.key_heads} * dim;
#pragma unroll
  for (int e = 0; e < kEach; ++e) {
    const int channel = lane + 32 * e;
    const bool inside = channel < dim;
    parts.q[e] = fresh && inside ? q_in[channel] : 0.0f;
    parts.k[e] = i < place.block.rows && inside ? k_in[channel] : 0.0f;
    parts.a[e] = fresh && inside ? call.decay.row(row)[at + channel] : 0.0f;
  }
}

// Normalised keys and queries, and the factors, of every row, a warp per row; two rows travel at a
// time.
__device__ void load_rows(const DeltaCall& call, const Place& place, Shared& shared) {
  const int lane = static_cast<int>(threadIdx.x) % 32;
  const int dim = call.shape.key_head_dim;
  const float rate = expf(call.a_log[place.head]);
  float bias[kEach];
#pragma unroll
  for (int e = 0; e < kEach; ++e) {
    const int channel = lane + 32 * e;
    bias[e] = channel < dim ? call.dt_bias[int64_t{place.head} * dim + channel] : 0.0f;
  }
#pragma unroll 1
  for (int first = static_cast<int>(threadIdx.x) / 32; first < kDeltaBlock; first += 2 * kWarps) {
    RowParts parts[2];
    load_parts(call, place, first, parts[0]);
    load_parts(call, place, first + kWarps, parts[1]);
#pragma unroll
    for (int r = 0; r < 2; ++r) {
      const int i = first + r * kWarps;
      float q_sum = 0;
      float k_sum = 0;
#pragma unroll
      for (int e = 0; e < kEach; ++e) {
        q_sum += parts[r].q[e] * parts[r].q[e];
        k_sum += parts[r].k[e] * parts[r].k[e];
      }
      const bool fresh = place.is_fresh(i);
      const float q_scale = rsqrtf(warp_sum(q_sum) + 1e-6f) * rsqrtf(static_cast<float>(dim));
      const float k_norm = rsqrtf(warp_sum(k_sum) + 1e-6f);
      const float k_scale = fresh ? k_norm : 1.0f;  // carried keys are normalised already
#pragma unroll
      for (int e = 0; e < kEach; ++e) {
        const int channel = lane + 32 * e;
        const float factor = fast_factor(parts[r].a[e] + bias[e], rate, call.lower_bound);
        shared.q[i][query_place(channel)] = __float2bfloat16_rn(parts[r].q[e] * q_scale);
        shared.k[i][channel] = parts[r].k[e] * k_scale;
        shared.factors[i][channel] = fresh ? factor : 1.0f;
      }
    }
  }
}

__device__ void load_gates(const DeltaCall& call, const Place& place, DeltaGates& gates) {
  const int i = static_cast<int>(threadIdx.x);
  if (i >= kDeltaBlock) return;
  const bool fresh = place.is_fresh(i);
  gates.beta[i] =
      fresh ? sigmoid(call.beta.row(place.row(i))[place.head]) : (place.is_held(i) ? 1.0f : 0.0f);
  gates.from_start[i] = fresh ? 1.0f : 0.0f;
  gates.to_end[i] = 1.0f;
  if (i == 0) gates.end = 1.0f;
}

template <typename T>
__device__ void clear(T& target) {
  auto* words = reinterpret_cast<uint4*>(&target);
  for (int i = static_cast<int>(threadIdx.x); i < static_cast<int>(sizeof(T) / 16); i += kThreads) {
    words[i] = make_uint4(0, 0, 0, 0);
  }
}

// E k (the first half of the threads) and E q (the other) of every row, a channel per thread, E
// being the decay since the block's start; zeros for the rows that are not fresh. Returns the last
// E. start: before the fresh rows.
__device__ float store_decayed(const Place& place, const Shared& shared, float start,
                               DeltaKeys& keys) {
  const int channel = static_cast<int>(threadIdx.x) % kScanKey;
  const bool queries = threadIdx.x >= kScanKey;
  float decay = start;
#pragma unroll 4
  for (int i = 0; i < kDeltaBlock; ++i) {
    float value = 0;
    if (place.is_fresh(i)) {
      decay *= shared.factors[i][channel];
      const float in =
          queries ? __bfloat162float(shared.q[i][query_place(channel)]) : shared.k[i][channel];
      value = decay * in;
    }
    uint8_t* matrix = queries ? keys.q : keys.k;
    *reinterpret_cast<__nv_bfloat16*>(matrix + key_chunk(i, channel / 8) + channel % 8 * 2) =
        __float2bfloat16_rn(value);
  }
  return decay;
}

// A lane's part of a row in shared memory.
__device__ void load_channels(const float* row, int lane, float (&values)[kChannels]) {
  const float4 low = *reinterpret_cast<const float4*>(row + 4 * lane);
  const float4 high = *reinterpret_cast<const float4*>(row + 64 + 4 * lane);
  values[0] = low.x;
  values[1] = low.y;
  values[2] = low.z;
  values[3] = low.w;
  values[4] = high.x;
  values[5] = high.y;
  values[6] = high.z;
  values[7] = high.w;
}

__device__ void load_query(const __nv_bfloat16* row, int lane, float (&values)[kChannels]) {
  const uint4 words = *reinterpret_cast<const uint4*>(row + kChannels * lane);
  const uint32_t pairs[4] = {words.x, words.y, words.z, words.w};
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    values[2 * i] = low_bf16(pairs[i]);
    values[2 * i + 1] = high_bf16(pairs[i]);
  }
}

// Sums over the kLanes lanes of a row of keys: lane 2 i (and 2 i + 1) gets the one of value i.
__device__ float spread_sum(float (&values)[2 * kKeys]) {
  const int lane = static_cast<int>(threadIdx.x);
#pragma unroll
  for (int half = kKeys; half > 0; half /= 2) {
    const int offset = 2 * half;
    const bool upper = (lane & offset) != 0;
#pragma unroll
    for (int i = 0; i < half; ++i) {
      const float kept = upper ? values[half + i] : values[i];
      const float given = upper ? values[i] : values[half + i];
      values[i] = kept + __shfl_xor_sync(kFullWarp, given, offset);
    }
  }
  return values[0] + __shfl_xor_sync(kFullWarp, values[0], 1);
}

// Product `sum` of row i with key j: into -A, or into P for the row's query.
__device__ void store_score(int i, int j, bool query, float sum, float beta, DeltaScores& scores) {
  const int at = token_chunk(i, j / 8) + j % 8 * 2;
  if (query) {
    *reinterpret_cast<__nv_bfloat16*>(scores.p + at) = __float2bfloat16_rn(j <= i ? sum : 0.0f);
    return;
  }
  const float a = j < i ? -beta * sum : 0.0f;
  *reinterpret_cast<__nv_bfloat16*>(scores.a + at) = __float2bfloat16_rn(a);
  if (i / 16 != j / 16) return;
  const int step = j % 16 / 2;
  scores.diagonal.entries[i / 16][step][i % 8 / 2][i % 2 + i / 8 % 2 * 2][j % 2] = a;
  if (i == j + 1 && j % 2 == 0) scores.diagonal.pair[i / 16][step] = a;
}

// The keys that a lane holds, faded row by row.
using Faded = float[kKeys][kChannels];

// Row i of the block: its factors fade the lane's keys, and their products with its key and query
// become scores. kOwn: one of the keys may be the row's own.
template <bool kOwn>
__device__ void take_row(int i, Shared& shared, Faded& faded) {
  const int lane = static_cast<int>(threadIdx.x) % kLanes;
  const int first = static_cast<int>(threadIdx.x) / kLanes * kKeys;
  float factors[kChannels];
  float key[kChannels];
  float query[kChannels];
  load_channels(shared.factors[i], lane, factors);
  load_channels(shared.k[i], lane, key);
  load_query(shared.q[i], lane, query);
  float sums[2 * kKeys];
#pragma unroll
  for (int j = 0; j < kKeys; ++j) {
    float by_key = 0;
    float by_query = 0;
#pragma unroll
    for (int c = 0; c < kChannels; ++c) {
      faded[j][c] *= factors[c];
      if (kOwn && first + j == i) faded[j][c] = key[c];
      by_key = fmaf(faded[j][c], key[c], by_key);
      by_query = fmaf(faded[j][c], query[c], by_query);
    }
    sums[2 * j] = by_key;
    sums[2 * j + 1] = by_query;
  }
  const float sum = spread_sum(sums);
  if (lane % 2 == 0) {
    store_score(i, first + lane / 4, lane / 2 % 2 == 1, sum, shared.gates.beta[i], shared.scores);
  }
}

__device__ void fade_and_score(const Place& place, Shared& shared, Faded& faded) {
  const int lane = static_cast<int>(threadIdx.x) % kLanes;
  const int first = static_cast<int>(threadIdx.x) / kLanes * kKeys;
  const int warp_first = static_cast<int>(threadIdx.x) / 32 * 2 * kKeys;
#pragma unroll
  for (int j = 0; j < kKeys; ++j) {
    load_channels(shared.k[first + j], lane, faded[j]);
#pragma unroll
    for (int c = 0; c < kChannels; ++c) faded[j][c] = place.is_held(first + j) ? faded[j][c] : 0.0f;
  }
  // The keys of a warp are not there yet in the rows before its first, and all of them after its
  // own.
  int i = max(place.block.held, warp_first);
  for (; i < min(place.block.rows, warp_first + 2 * kKeys); ++i) take_row<true>(i, shared, faded);
  for (; i < place.block.rows; ++i) take_row<false>(i, shared, faded);
}

// The faded keys for the block's end, and to the carry when the block goes on.
__device__ void store_faded(const DeltaCall& call, const Place& place, const Faded& faded,
                            DeltaFolded& folded) {
  const int lane = static_cast<int>(threadIdx.x) % kLanes;
  const int first = static_cast<int>(threadIdx.x) / kLanes * kKeys;
  const int dim = call.shape.key_head_dim;
#pragma unroll
  for (int j = 0; j < kKeys; ++j) {
    const int row = first + j;
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const float(&values)[kChannels] = faded[j];
      *reinterpret_cast<uint2*>(folded.k + key_chunk(row, half * 8 + lane / 2) + lane % 2 * 8) =
          make_uint2(pack_bf16(values[4 * half], values[4 * half + 1]),
                     pack_bf16(values[4 * half + 2], values[4 * half + 3]));
      if (row >= place.block.rows || place.block.rows == kDeltaBlock) continue;
      float* carried = place.segment.keys.row(row) + int64_t{place.head} * dim;
#pragma unroll
      for (int c = 0; c < 4; ++c) {
        const int channel = half * 64 + 4 * lane + c;
        if (channel < dim) carried[channel] = values[4 * half + c];
      }
    }
  }
}

template <typename T>
__device__ void copy_out(const T& from, T* to) {
  const auto* source = reinterpret_cast<const uint4*>(&from);
  auto* target = reinterpret_cast<uint4*>(to);
  for (int i = static_cast<int>(threadIdx.x); i < static_cast<int>(sizeof(T) / 16); i += kThreads) {
    target[i] = source[i];
  }
}

// Grid: (blocks of tokens, heads).
__global__ void __launch_bounds__(kThreads, 2)
    channel_prepare_kernel(const __grid_constant__ DeltaCall call, DeltaBlocks blocks) {
  extern __shared__ __align__(128) uint8_t storage[];
  auto& shared = *reinterpret_cast<Shared*>(storage);
  const int number = static_cast<int>(blockIdx.x);
  Place place;
  place.segment = delta_segment_of(call, number);
  place.block = delta_block_rows(place.segment, number - place.segment.first_block);
  place.head = static_cast<int>(blockIdx.y);
  const int64_t index = int64_t{number} * call.shape.value_heads + place.head;
  const int channel = static_cast<int>(threadIdx.x) % kScanKey;
  const int64_t decay_at = int64_t{place.head} * call.shape.key_head_dim + channel;
  const bool inside = channel < call.shape.key_head_dim;
  const bool carried = place.block.held > 0 && inside;
  // Read before this block's own decay may replace it.
  const float start = carried ? place.segment.held_decays.row(0)[decay_at] : 1.0f;
  load_rows(call, place, shared);
  load_gates(call, place, shared.gates);
  clear(shared.scores);
  __syncthreads();
  const float decay = store_decayed(place, shared, start, blocks.keys[index]);
  if (threadIdx.x < kScanKey) {
    blocks.folded[index].end[channel] = decay;
    if (inside && place.block.rows < kDeltaBlock) place.segment.decays.row(0)[decay_at] = decay;
  }
  Faded faded;
  fade_and_score(place, shared, faded);
  store_faded(call, place, faded, blocks.folded[index]);
  __syncthreads();
  copy_out(shared.scores, &blocks.heads[index].scores);
  copy_out(shared.gates, &blocks.heads[index].gates);
}

}  // namespace

void launch_channel_prepare(CudaStream& stream, const DeltaCall& call, const DeltaBlocks& blocks,
                            int block_count) {
  constexpr int kBytes = sizeof(Shared);
  stream.note(cudaFuncSetAttribute(channel_prepare_kernel,
                                   cudaFuncAttributeMaxDynamicSharedMemorySize, kBytes),
              "channel_delta.chunked");
  const dim3 grid(static_cast<unsigned>(block_count),
                  static_cast<unsigned>(call.shape.value_heads));
  channel_prepare_kernel<<<grid, kThreads, kBytes, stream.handle()>>>(call, blocks);
  stream.check_launch("channel_delta.chunked (blocks)");
}

}  // namespace motley::cuda
