// What a block of the gated delta rule needs before the state is known (gated_delta_blocks.cuh).
#include "ops/cuda/gated_delta_blocks.cuh"

namespace motley::cuda {
namespace {

constexpr int kThreads = 256;
constexpr int kWarps = kThreads / 32;

struct HeadGates {
  DeltaGates gates;
  float sums[kDeltaBlock];  // G
};

struct Shared {
  DeltaKeys keys;
  DeltaScores scores[2];    // of one head while those of the one before are copied out
  HeadGates heads[kWarps];  // a warp each
};

// The part of the work that one thread block does.
struct Place {
  DeltaSegment segment;
  DeltaBlockRows block;
  int key_head;
  int64_t number;  // of the block of tokens in the call

  __device__ bool is_held(int i) const { return i < block.held; }
  __device__ bool is_fresh(int i) const { return i >= block.held && i < block.rows; }
  __device__ int64_t row(int i) const { return segment.first_row + block.done + i - block.held; }
};

__device__ Place find_place(const DeltaCall& call) {
  Place place;
  const int number = static_cast<int>(blockIdx.x);
  place.segment = delta_segment_of(call, number);
  place.block = delta_block_rows(place.segment, number - place.segment.first_block);
  place.key_head = static_cast<int>(blockIdx.y);
  place.number = number;
  return place;
}

// Four elements of a row from 4 * lane on; zeros past the end.
__device__ float4 load_four(const float* row, int dim, bool aligned) {
  const int lane = static_cast<int>(threadIdx.x) % 32;
  const float* from = row + (4 * lane < dim ? 4 * lane : 0);
  float4 value;
  if (aligned) {
    value = *reinterpret_cast<const float4*>(from);
  } else {
    value = make_float4(from[0], from[1], from[2], from[3]);
  }
  return value;
}

__device__ float sum_of_squares(const float4& x) {
  return warp_sum(x.x * x.x + x.y * x.y + x.z * x.z + x.w * x.w);
}

__device__ void store_four(uint8_t* matrix, int row, const float4& x, float scale) {
  const int lane = static_cast<int>(threadIdx.x) % 32;
  *reinterpret_cast<uint2*>(matrix + key_chunk(row, lane / 2) + lane % 2 * 8) =
      make_uint2(pack_bf16(x.x * scale, x.y * scale), pack_bf16(x.z * scale, x.w * scale));
}

// Normalised keys and queries, a warp per row; the keys of an unfinished block go to the carry.
// Four rows travel at a time; rows that are not there are some other row times zero, which could
// be NaN: they are chosen away.
__device__ void load_rows(const DeltaCall& call, const Place& place, DeltaKeys& keys) {
  const int dim = call.shape.key_head_dim;
  const int64_t at = int64_t{place.key_head} * dim;
  const int64_t to_key = int64_t{call.shape.key_heads} * dim;
  const int lane = static_cast<int>(threadIdx.x) % 32;
  const bool aligned = (reinterpret_cast<uintptr_t>(call.qkv.data) % 16 == 0) &&
                       (reinterpret_cast<uintptr_t>(place.segment.held_keys.data) % 16 == 0) &&
                       call.qkv.stride % 4 == 0 && place.segment.held_keys.stride % 4 == 0;
  const bool inside = 4 * lane < dim;
#pragma unroll 1
  for (int first = static_cast<int>(threadIdx.x) / 32; first < kDeltaBlock; first += 4 * kWarps) {
    float4 q[4];
    float4 k[4];
#pragma unroll
    for (int j = 0; j < 4; ++j) {
      const int i = first + j * kWarps;
      const float* in = call.qkv.row(place.is_fresh(i) ? place.row(i) : place.segment.first_row);
      q[j] = load_four(in + at, dim, aligned);
      k[j] = load_four(place.is_held(i) ? place.segment.held_keys.row(i) + at : in + to_key + at,
                       dim, aligned);
    }
#pragma unroll
    for (int j = 0; j < 4; ++j) {
      const int i = first + j * kWarps;
      const bool fresh = place.is_fresh(i);
      const float4 zero = make_float4(0, 0, 0, 0);
      if (!fresh || !inside) q[j] = zero;
      if (i >= place.block.rows || !inside) k[j] = zero;
      const float q_scale = rsqrtf(sum_of_squares(q[j]) + 1e-6f) * rsqrtf(static_cast<float>(dim));
      const float k_norm = rsqrtf(sum_of_squares(k[j]) + 1e-6f);
      const float k_scale = fresh ? k_norm : 1.0f;  // carried keys are normalised already
      store_four(keys.q, i, q[j], q_scale);
      store_four(keys.k, i, k[j], k_scale);
      if (fresh && inside && place.block.rows < kDeltaBlock) {
        float* carried = place.segment.keys.row(i) + at + lane * 4;
        carried[0] = k[j].x * k_scale;
        carried[1] = k[j].y * k_scale;
        carried[2] = k[j].z * k_scale;
        carried[3] = k[j].w * k_scale;
      }
    }
  }
}

// One warp: G of a head, and what scales the rows. A lane holds rows 2 lane, 2 lane + 1; a row's
// sum runs over the rows before it in an order that depends on nothing else.
__device__ void load_gates(const DeltaCall& call, const Place& place, int head, HeadGates& result) {
  const int lane = static_cast<int>(threadIdx.x) % 32;
  float g[2];
  float beta[2];
#pragma unroll
  for (int j = 0; j < 2; ++j) {
    const int i = 2 * lane + j;
    g[j] = 0;
    beta[j] = 0;
    if (place.is_fresh(i)) {
      g[j] = delta_log_decay(call, place.row(i), head);
      beta[j] = sigmoid(call.beta.row(place.row(i))[head]);
      if (place.block.rows < kDeltaBlock) place.segment.decays.row(i)[head] = g[j];
    } else if (place.is_held(i)) {
      g[j] = place.segment.held_decays.row(i)[head];
      beta[j] = 1;
    }
  }
  float before = g[0] + g[1];
  for (int offset = 1; offset < 32; offset *= 2) {
    const float other = __shfl_up_sync(kFullWarp, before, offset);
    if (lane >= offset) before += other;
  }
  const float last = __shfl_sync(kFullWarp, before, 31);
  before = __shfl_up_sync(kFullWarp, before, 1);
  if (lane == 0) before = 0;
  const float sum[2] = {before + g[0], before + g[0] + g[1]};
#pragma unroll
  for (int j = 0; j < 2; ++j) {
    const int i = 2 * lane + j;
    result.sums[i] = sum[j];
    result.gates.beta[i] = beta[j];
    result.gates.from_start[i] = place.is_held(i) ? 0.0f : expf(sum[j]);
    result.gates.to_end[i] = expf(last - sum[j]);
  }
  if (lane == 0) result.gates.end = expf(last);
}

// Raw products of 16 rows, from row0 on, with 32 keys, from col0 on.
__device__ void multiply(const uint8_t* rows, const uint8_t* keys, int row0, int col0,
                         float (&c)[4][4]) {
  const int lane = static_cast<int>(threadIdx.x) % 32;
#pragma unroll
  for (int k = 0; k < kScanKey; k += 16) {
    uint32_t a[4];
    load_matrix_x4(a, shared_address(rows) +
                          static_cast<uint32_t>(key_chunk(row0 + lane % 16, k / 8 + lane / 16)));
#pragma unroll
    for (int n = 0; n < 4; n += 2) {
      uint32_t b[4];
      load_columns<key_chunk>(keys, col0 + 8 * n, k, b);
      mma_bf16(c[n], a[0], a[1], a[2], a[3], b[0], b[1]);
      mma_bf16(c[n + 1], a[0], a[1], a[2], a[3], b[2], b[3]);
    }
  }
}

// Scaled pairs at (row, col), (row, col + 1) of -A and P to their places.
__device__ void store_scores(int row, int col, bool held, const float (&by_key)[2],
                             const float (&by_query)[2], const HeadGates& head,
                             DeltaScores& scores) {
  float a[2];
  float p[2];
#pragma unroll
  for (int j = 0; j < 2; ++j) {
    const float decay = col + j <= row ? __expf(head.sums[row] - head.sums[col + j]) : 0.0f;
    const bool below = col + j < row && !held;
    a[j] = below ? -head.gates.beta[row] * decay * by_key[j] : 0.0f;
    p[j] = decay * by_query[j];
  }
  const int at = token_chunk(row, col / 8) + col % 8 * 2;
  *reinterpret_cast<uint32_t*>(scores.a + at) = pack_bf16(a[0], a[1]);
  *reinterpret_cast<uint32_t*>(scores.p + at) = pack_bf16(p[0], p[1]);
  if (row / 16 != col / 16) return;
  const int step = col % 16 / 2;
  const int slot = row % 2 + row / 8 % 2 * 2;
  *reinterpret_cast<float2*>(scores.diagonal.entries[row / 16][step][row % 8 / 2][slot]) =
      make_float2(a[0], a[1]);
  if (row == col + 1) scores.diagonal.pair[row / 16][step] = a[0];
}

template <typename T>
__device__ void copy_out(const T& from, T* to) {
  const auto* source = reinterpret_cast<const uint4*>(&from);
  auto* target = reinterpret_cast<uint4*>(to);
  for (int i = static_cast<int>(threadIdx.x); i < static_cast<int>(sizeof(T) / 16); i += kThreads) {
    target[i] = source[i];
  }
}

// This warp's part of -A and P of one head.
struct RawScores {
  float by_key[4][4];
  float by_query[4][4];
};

__device__ void store_head(const Place& place, const RawScores& raw, const HeadGates& head,
                           DeltaScores& scores) {
  const int warp = static_cast<int>(threadIdx.x) / 32;
  const int lane = static_cast<int>(threadIdx.x) % 32;
#pragma unroll
  for (int n = 0; n < 4; ++n) {
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const int row = warp / 2 * 16 + lane / 4 + 8 * half;
      const int col = warp % 2 * 32 + 8 * n + lane % 4 * 2;
      const float key_pair[2] = {raw.by_key[n][2 * half], raw.by_key[n][2 * half + 1]};
      const float query_pair[2] = {raw.by_query[n][2 * half], raw.by_query[n][2 * half + 1]};
      store_scores(row, col, place.is_held(row), key_pair, query_pair, head, scores);
    }
  }
}

// Grid: (blocks of tokens, key heads).
__global__ void __launch_bounds__(kThreads, 2)
    prepare_kernel(const __grid_constant__ DeltaCall call, DeltaBlocks blocks) {
  extern __shared__ __align__(128) uint8_t storage[];
  auto& shared = *reinterpret_cast<Shared*>(storage);
  const Place place = find_place(call);
  const int warp = static_cast<int>(threadIdx.x) / 32;
  const int each = call.shape.value_heads / call.shape.key_heads;
  const int first_head = place.key_head * each;
  DeltaHead* heads = blocks.heads + place.number * call.shape.value_heads + first_head;
  load_rows(call, place, shared.keys);
  if (warp < each) load_gates(call, place, first_head + warp, shared.heads[warp]);
  __syncthreads();
  copy_out(shared.keys, blocks.keys + place.number * call.shape.key_heads + place.key_head);
  RawScores raw = {};
  if (warp % 2 * 32 <= warp / 2 * 16) {
    multiply(shared.keys.k, shared.keys.k, warp / 2 * 16, warp % 2 * 32, raw.by_key);
    multiply(shared.keys.q, shared.keys.k, warp / 2 * 16, warp % 2 * 32, raw.by_query);
  }
  for (int index = 0; index < each; ++index) {
    if (index > 0 && index % kWarps == 0) {
      __syncthreads();
      if (index + warp < each) {
        load_gates(call, place, first_head + index + warp, shared.heads[warp]);
      }
      __syncthreads();
    }
    const HeadGates& head = shared.heads[index % kWarps];
    DeltaScores& scores = shared.scores[index % 2];
    store_head(place, raw, head, scores);
    __syncthreads();  // also: all have copied what the next head overwrites
    copy_out(scores, &heads[index].scores);
    copy_out(head.gates, &heads[index].gates);
  }
}

}  // namespace

void launch_delta_prepare(CudaStream& stream, const DeltaCall& call, const DeltaBlocks& blocks,
                          int block_count) {
  constexpr int kBytes = sizeof(Shared);
  stream.note(
      cudaFuncSetAttribute(prepare_kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, kBytes),
      "gated_delta.chunked");
  const dim3 grid(static_cast<unsigned>(block_count), static_cast<unsigned>(call.shape.key_heads));
  prepare_kernel<<<grid, kThreads, kBytes, stream.handle()>>>(call, blocks);
  stream.check_launch("gated_delta.chunked (blocks)");
}

}  // namespace motley::cuda
