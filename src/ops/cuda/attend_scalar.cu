// Attention for shapes that the tensor-core kernels do not take, and the merges.
#include <vector>

#include "ops/cuda/attention_kernels.h"
#include "ops/cuda/device_math.cuh"

namespace motley::cuda {
namespace {

constexpr int kThreads = 128;

__device__ float cache_element(const AttendCall& call, const AttendRow& row, int kv_head,
                               int64_t token, bool is_value, int i) {
  const int64_t plane = int64_t{call.layout.tokens_per_page} * call.dim;
  const int64_t at = (2 * kv_head + (is_value ? 1 : 0)) * plane +
                     token % call.layout.tokens_per_page * call.dim + i;
  const std::byte* page = row.pages[token / call.layout.tokens_per_page];
  if (call.layout.dtype == DType::kBf16) {
    return __bfloat162float(reinterpret_cast<const __nv_bfloat16*>(page)[at]);
  }
  return reinterpret_cast<const float*>(page)[at];
}

// Grid: (chunks, heads, rows); the same cuts as the split kernel.
__global__ void __launch_bounds__(kThreads)
    scalar_attend_kernel(const __grid_constant__ AttendCall call) {
  __shared__ float p[kAttendChunk];
  const AttendRow row = call.rows[blockIdx.z];
  const int head = static_cast<int>(blockIdx.y);
  const int kv_head = head / (call.heads / call.kv_heads);
  const int64_t first = static_cast<int64_t>(blockIdx.x) * kAttendChunk;
  const int64_t left = row.visible - first;
  const int keys = static_cast<int>(left < 0 ? 0 : left > kAttendChunk ? kAttendChunk : left);
  const float* q = call.q + row.row * call.q_stride + int64_t{head} * call.dim;
  for (int key = static_cast<int>(threadIdx.x); key < keys; key += kThreads) {
    float sum = 0;
    for (int i = 0; i < call.dim; ++i) {
      sum = fmaf(q[i], cache_element(call, row, kv_head, first + key, false, i), sum);
    }
    p[key] = sum * call.scale;
  }
  __syncthreads();
  float maximum = -INFINITY;
  for (int key = 0; key < keys; ++key) maximum = fmaxf(maximum, p[key]);
  float total = 0;
  for (int key = 0; key < keys; ++key) total += expf(p[key] - maximum);
  const bool whole = call.chunks == 1;
  const int64_t part = static_cast<int64_t>(blockIdx.z) * call.chunks + blockIdx.x;
  float* out = (whole ? call.out + row.row * call.out_stride
                      : call.part_out + part * call.heads * call.dim) +
               int64_t{head} * call.dim;
  for (int i = static_cast<int>(threadIdx.x); i < call.dim; i += kThreads) {
    float sum = 0;
    for (int key = 0; key < keys; ++key) {
      sum = fmaf(expf(p[key] - maximum), cache_element(call, row, kv_head, first + key, true, i),
                 sum);
    }
    out[i] = keys > 0 ? sum / total : 0.0f;
  }
  if (threadIdx.x == 0) {
    float* lse = whole ? call.lse + row.row * call.lse_stride : call.part_lse + part * call.heads;
    lse[head] = keys > 0 ? maximum + logf(total) : -INFINITY;
  }
}

// One of the partial results of a row, as the merge reads it.
struct Part {
  const float* out;
  const float* lse;
  int64_t out_stride;  // per row
  int64_t lse_stride;
};

constexpr int kMergeWarps = 8;
constexpr int kMergeDims = 64;  // per block, two per lane

struct MergeShared {
  float highest[kMergeWarps];
  float sums[kMergeWarps];
  float2 out[kMergeWarps][32];
};

struct MergeTarget {
  float* out;  // of the row and head
  float* lse;
  int dim;
};

// Partials w, w + 8, .. belong to warp w, and the warps' sums are added in order: what a row gets
// depends on its own partials alone. part(i) names partial i; out and lse may be those of one.
template <typename PartOf>
__device__ void merge_head(const PartOf& part, int parts, int64_t row, int head,
                           const MergeTarget& target, MergeShared& shared) {
  const int lane = static_cast<int>(threadIdx.x) % 32;
  const int warp = static_cast<int>(threadIdx.x) / 32;
  const int d = static_cast<int>(blockIdx.z) * kMergeDims + 2 * lane;
  float highest = -INFINITY;
  for (int i = static_cast<int>(threadIdx.x); i < parts; i += 32 * kMergeWarps) {
    highest = fmaxf(highest, part(i).lse[row * part(i).lse_stride + head]);
  }
  highest = warp_max(highest);
  if (lane == 0) shared.highest[warp] = highest;
  __syncthreads();
  for (int w = 0; w < kMergeWarps; ++w) highest = fmaxf(highest, shared.highest[w]);
  const float base = highest == -INFINITY ? 0.0f : highest;
  float sum = 0;
  float2 merged = make_float2(0, 0);
#pragma unroll 4
  for (int i = warp; i < parts; i += kMergeWarps) {
    const Part from = part(i);
    const float weight = expf(from.lse[row * from.lse_stride + head] - base);
    const float* out = from.out + row * from.out_stride + int64_t{head} * target.dim;
    // A part that saw no key has weight 0 and finite contents.
    if (d < target.dim) merged.x = fmaf(weight, out[d], merged.x);
    if (d + 1 < target.dim) merged.y = fmaf(weight, out[d + 1], merged.y);
    sum += weight;
  }
  shared.out[warp][lane] = merged;
  if (lane == 0) shared.sums[warp] = sum;
  __syncthreads();  // also: all have read the partials before the result may replace one
  if (warp != 0) return;
  float total = 0;
  merged = make_float2(0, 0);
  for (int w = 0; w < kMergeWarps; ++w) {
    total += shared.sums[w];
    merged.x += shared.out[w][lane].x;
    merged.y += shared.out[w][lane].y;
  }
  const float scale = total > 0 ? 1.0f / total : 0.0f;
  if (d < target.dim) target.out[d] = merged.x * scale;
  if (d + 1 < target.dim) target.out[d + 1] = merged.y * scale;
  if (lane == 0 && blockIdx.z == 0) {
    *target.lse = total > 0 ? highest + logf(total) : -INFINITY;
  }
}

// Grid: (heads, rows, slices of dims).
__global__ void __launch_bounds__(32 * kMergeWarps)
    merge_chunks_kernel(const __grid_constant__ AttendCall call) {
  __shared__ MergeShared shared;
  const int head = static_cast<int>(blockIdx.x);
  const int64_t row = blockIdx.y;
  const AttendRow item = call.rows[row];
  // Chunks past the row's last token hold nothing.
  const int64_t used = (item.visible + kAttendChunk - 1) / kAttendChunk;
  const int chunks = static_cast<int>(used < call.chunks ? used : call.chunks);
  const int64_t head_floats = int64_t{call.heads} * call.dim;
  const auto part = [&](int i) {
    return Part{call.part_out + (row * call.chunks + i) * head_floats,
                call.part_lse + (row * call.chunks + i) * call.heads, 0, 0};
  };
  const MergeTarget target{call.out + item.row * call.out_stride + int64_t{head} * call.dim,
                           call.lse + item.row * call.lse_stride + head, call.dim};
  merge_head(part, chunks, row, head, target, shared);
}

// The result may replace partial 0, so one block does all dims of a head, slice by slice, and the
// log-sum-exps are kept until the last.
__global__ void __launch_bounds__(128)
    merge_parts_kernel(const Part* parts, int count, int dim, Rows out, Rows lse) {
  const int head = static_cast<int>(blockIdx.x);
  const int64_t row = blockIdx.y;
  float highest = -INFINITY;
  for (int i = 0; i < count; ++i) {
    highest = fmaxf(highest, parts[i].lse[row * parts[i].lse_stride + head]);
  }
  const float base = highest == -INFINITY ? 0.0f : highest;
  float total = 0;
  for (int i = 0; i < count; ++i) {
    total += expf(parts[i].lse[row * parts[i].lse_stride + head] - base);
  }
  for (int d = static_cast<int>(threadIdx.x); d < dim; d += 128) {
    float merged = 0;
    for (int i = 0; i < count; ++i) {
      const Part& from = parts[i];
      const float weight = expf(from.lse[row * from.lse_stride + head] - base);
      merged = fmaf(weight, from.out[row * from.out_stride + int64_t{head} * dim + d], merged);
    }
    out.row(row)[int64_t{head} * dim + d] = total > 0 ? merged / total : 0.0f;
  }
  __syncthreads();  // all have read the log-sum-exps
  if (threadIdx.x == 0) lse.row(row)[head] = total > 0 ? highest + logf(total) : -INFINITY;
}

}  // namespace

void attend_scalar(CudaStream& stream, const AttendCall& call, int64_t rows) {
  const dim3 grid(static_cast<unsigned>(call.chunks), static_cast<unsigned>(call.heads),
                  static_cast<unsigned>(rows));
  scalar_attend_kernel<<<grid, kThreads, 0, stream.handle()>>>(call);
  stream.check_launch("attend (scalar)");
}

void merge_chunks(CudaStream& stream, const AttendCall& call, int64_t rows) {
  const dim3 grid(static_cast<unsigned>(call.heads), static_cast<unsigned>(rows),
                  grid_of(call.dim, kMergeDims));
  merge_chunks_kernel<<<grid, 32 * kMergeWarps, 0, stream.handle()>>>(call);
  stream.check_launch("attend (merge)");
}

void merge_attention(Stream& any, std::span<const PartialAttention> parts,
                     const PartialAttention& result) {
  CudaStream& stream = cuda_stream(any);
  Arena::Scope scope(stream.scratch());
  const Shape& shape = result.out.shape;
  if (shape[0] == 0) return;
  std::vector<Part> items;
  for (const PartialAttention& part : parts) {
    items.push_back({reinterpret_cast<const float*>(part.out.data),
                     reinterpret_cast<const float*>(part.lse.values.data), part.out.row_stride,
                     part.lse.values.row_stride});
  }
  const dim3 grid(static_cast<unsigned>(shape[1]), static_cast<unsigned>(shape[0]));
  merge_parts_kernel<<<grid, 128, 0, stream.handle()>>>(
      stream.upload<Part>(items), static_cast<int>(items.size()), static_cast<int>(shape[2]),
      rows_of(result.out), rows_of(result.lse.values));
  stream.check_launch("merge");
}

}  // namespace motley::cuda
