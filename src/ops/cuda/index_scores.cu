// Scores of an indexer's keys; contract in ops/index.h.
//
// A thread block holds 256 keys, a warp 32 of them as operands in registers, while the rows of a
// segment go by: heads are the rows of the products. Queries are two bfloat16 pieces, so over a
// bfloat16 cache scores have float32 quality in both profiles.
#include <algorithm>
#include <vector>

#include "ops/cuda/cuda_stream.h"
#include "ops/cuda/device_math.cuh"
#include "ops/cuda/index_kernels.h"
#include "ops/cuda/tensor_core.cuh"

namespace motley::cuda {
namespace {

constexpr int kThreads = 256;
constexpr int kKeys = 256;     // of a thread block
constexpr int kWarpKeys = 32;  // of a warp
constexpr int kMaxDim = 128;
constexpr int kMaxHeads = 64;
constexpr int kPitch = kMaxDim + 8;
constexpr int32_t kRowsAtOnce = 8;  // of a segment, per thread block

// Rows of one segment.
struct Item {
  const std::byte* const* pages;
  int64_t first_position;
  int32_t first_row;
  int32_t rows;
};

struct Call {
  ConstRows q;
  ConstRows weights;
  Rows scores;
  const Item* items;
  float scale;
  int heads;
  int dim;
  int tokens_per_key;
  int rows_per_page;
  bool is_bf16;
};

__device__ int64_t keys_of(const Call& call, const Item& item, int row) {
  return (item.first_position + row + 1) / call.tokens_per_key;
}

struct Shared {
  __nv_bfloat16 q[2][kMaxHeads][kPitch];
  float weights[kMaxHeads];
};

// The keys of a warp as operand B: [column tile][step][half].
using Keys = uint32_t[kWarpKeys / 8][kMaxDim / 16][2];

__device__ void load_keys(const Call& call, const Item& item, int64_t first, int64_t limit,
                          Keys& keys) {
  const int lane = static_cast<int>(threadIdx.x) % 32;
#pragma unroll
  for (int n = 0; n < kWarpKeys / 8; ++n) {
    const int64_t key = min(first + 8 * n + lane / 4, limit - 1);
    const auto* row = reinterpret_cast<const uint32_t*>(item.pages[key / call.rows_per_page] +
                                                        key % call.rows_per_page * call.dim * 2);
#pragma unroll
    for (int step = 0; step < kMaxDim / 16; ++step) {
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        const int at = step * 8 + half * 4 + lane % 4;  // pairs of elements
        keys[n][step][half] = 2 * at < call.dim ? row[at] : 0u;
      }
    }
  }
}

__device__ void load_row(const Call& call, int64_t row, Shared& shared) {
  const float* q = call.q.row(row);
  for (int i = static_cast<int>(threadIdx.x); i < kMaxHeads * kMaxDim / 2; i += kThreads) {
    const int head = i / (kMaxDim / 2);
    const int at = i % (kMaxDim / 2) * 2;
    uint32_t high = 0;
    uint32_t low = 0;
    if (head < call.heads && at < call.dim) {
      split_bf16(q[head * call.dim + at], q[head * call.dim + at + 1], &high, &low);
    }
    *reinterpret_cast<uint32_t*>(&shared.q[0][head][at]) = high;
    *reinterpret_cast<uint32_t*>(&shared.q[1][head][at]) = low;
  }
  const int head = static_cast<int>(threadIdx.x);
  if (head < kMaxHeads) {
    shared.weights[head] = head < call.heads ? call.weights.row(row)[head] * call.scale : 0.0f;
  }
}

// Scores of a warp's keys: sums[n] of columns 2t, 2t + 1 of tile n, by eighth of the heads.
__device__ void score_keys(const Call& call, const Shared& shared, const Keys& keys,
                           float (&sums)[kWarpKeys / 8][2]) {
  const int lane = static_cast<int>(threadIdx.x) % 32;
  for (int head0 = 0; head0 < call.heads; head0 += 16) {
    float c[kWarpKeys / 8][4] = {};
#pragma unroll
    for (int step = 0; step < kMaxDim / 16; ++step) {
      if (16 * step >= call.dim) break;
#pragma unroll
      for (int piece = 0; piece < 2; ++piece) {
        uint32_t a[4];
        load_matrix_x4(
            a, shared_address(&shared.q[piece][head0 + lane % 16][16 * step + lane / 16 * 8]));
#pragma unroll
        for (int n = 0; n < kWarpKeys / 8; ++n) {
          mma_bf16(c[n], a[0], a[1], a[2], a[3], keys[n][step][0], keys[n][step][1]);
        }
      }
    }
    const float low = shared.weights[head0 + lane / 4];
    const float high = shared.weights[head0 + lane / 4 + 8];
#pragma unroll
    for (int n = 0; n < kWarpKeys / 8; ++n) {
#pragma unroll
      for (int j = 0; j < 2; ++j) {
        sums[n][j] = fmaf(low, fmaxf(c[n][j], 0.0f), sums[n][j]);
        sums[n][j] = fmaf(high, fmaxf(c[n][2 + j], 0.0f), sums[n][j]);
      }
    }
  }
}

// Grid: (blocks of keys, items).
__global__ void __launch_bounds__(kThreads) scores_kernel(const __grid_constant__ Call call) {
  extern __shared__ __align__(16) uint8_t storage[];
  auto& shared = *reinterpret_cast<Shared*>(storage);
  const Item item = call.items[blockIdx.y];
  const int64_t block0 = int64_t{blockIdx.x} * kKeys;
  const int64_t limit = keys_of(call, item, item.rows - 1);
  if (block0 >= limit) return;
  const int lane = static_cast<int>(threadIdx.x) % 32;
  const int64_t first = block0 + static_cast<int>(threadIdx.x) / 32 * kWarpKeys;
  Keys keys;
  load_keys(call, item, first, limit, keys);
  for (int r = 0; r < item.rows; ++r) {
    const int64_t visible = keys_of(call, item, r);
    if (block0 >= visible) continue;
    load_row(call, item.first_row + r, shared);
    __syncthreads();
    float sums[kWarpKeys / 8][2] = {};
    if (first < visible) score_keys(call, shared, keys, sums);
#pragma unroll
    for (int n = 0; n < kWarpKeys / 8; ++n) {
#pragma unroll
      for (int j = 0; j < 2; ++j) {
        float sum = sums[n][j];
        for (int offset = 4; offset < 32; offset *= 2) {
          sum += __shfl_xor_sync(kFullWarp, sum, offset);
        }
        const int64_t key = first + 8 * n + lane % 4 * 2 + j;
        if (lane < 4 && key < visible) call.scores.row(item.first_row + r)[key] = sum;
      }
    }
    __syncthreads();
  }
}

// Any shape and either cache: a warp per key and row. Grid: (blocks of keys, items).
__global__ void __launch_bounds__(kThreads)
    scores_scalar_kernel(const __grid_constant__ Call call) {
  const Item item = call.items[blockIdx.y];
  const int lane = static_cast<int>(threadIdx.x) % 32;
  const int64_t first = int64_t{blockIdx.x} * kKeys + threadIdx.x / 32;
  for (int64_t key = first; key < first + kKeys; key += kThreads / 32) {
    if (key >= (int64_t{blockIdx.x} + 1) * kKeys) break;
    for (int r = 0; r < item.rows; ++r) {
      if (key >= keys_of(call, item, r)) continue;
      const std::byte* row = item.pages[key / call.rows_per_page] +
                             key % call.rows_per_page * call.dim * (call.is_bf16 ? 2 : 4);
      const int64_t index = item.first_row + r;
      float sum = 0;
      for (int head = 0; head < call.heads; ++head) {
        const float* q = call.q.row(index) + head * call.dim;
        float dot = 0;
        for (int i = lane; i < call.dim; i += 32) {
          const float value = call.is_bf16
                                  ? __bfloat162float(reinterpret_cast<const __nv_bfloat16*>(row)[i])
                                  : reinterpret_cast<const float*>(row)[i];
          dot = fmaf(q[i], value, dot);
        }
        dot = warp_sum(dot);
        sum = fmaf(call.weights.row(index)[head] * call.scale, fmaxf(dot, 0.0f), sum);
      }
      if (lane == 0) call.scores.row(index)[key] = sum;
    }
  }
}

}  // namespace

void index_scores(Stream& any, const IndexScoresArgs& args) {
  if (args.segments.empty()) return;
  CudaStream& stream = cuda_stream(any);
  Arena::Scope scope(stream.scratch());
  std::vector<Item> items;
  int64_t longest = 0;
  for (const RowCacheSegment& segment : args.segments) {
    MOTLEY_CHECK(segment.cache.shard.is_whole(), "an indexer sees every key");
    const std::byte* const* pages = stream.upload(std::span<std::byte* const>(segment.cache.pages));
    for (int32_t i = 0; i < segment.rows.rows; i += kRowsAtOnce) {
      const int32_t rows = std::min(kRowsAtOnce, segment.rows.rows - i);
      const int64_t position = segment.rows.first_position.value + i;
      items.push_back({pages, position, segment.rows.first_row + i, rows});
      longest = std::max(longest, (position + rows) / args.tokens_per_key);
    }
  }
  if (longest == 0) return;
  const RowCacheLayout& layout = args.segments[0].cache.layout;
  Call call{};
  call.q = rows_of(args.q);
  call.weights = rows_of(args.weights);
  call.scores = rows_of(args.scores);
  call.scale = args.scale;
  call.heads = static_cast<int>(args.q.shape[1]);
  call.dim = static_cast<int>(args.q.shape[2]);
  call.tokens_per_key = args.tokens_per_key;
  call.rows_per_page = layout.rows_per_page;
  call.is_bf16 = layout.dtype == DType::kBf16;
  const bool tensor_cores =
      call.is_bf16 && call.dim % 2 == 0 && call.dim <= kMaxDim && call.heads <= kMaxHeads;
  constexpr int kBytes = sizeof(Shared);
  stream.note(
      cudaFuncSetAttribute(scores_kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, kBytes),
      "index.scores");
  const Item* on_device = stream.upload<Item>(items);
  // The grid's second dimension is limited to 65535.
  for (size_t begin = 0; begin < items.size(); begin += 32768) {
    call.items = on_device + begin;
    const dim3 grid(grid_of(longest, kKeys),
                    static_cast<unsigned>(std::min<size_t>(32768, items.size() - begin)));
    if (tensor_cores) {
      scores_kernel<<<grid, kThreads, kBytes, stream.handle()>>>(call);
    } else {
      scores_scalar_kernel<<<grid, kThreads, 0, stream.handle()>>>(call);
    }
  }
  stream.check_launch("index.scores");
}

}  // namespace motley::cuda
