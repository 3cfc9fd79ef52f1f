// Attention over latent rows for caches and shapes that the tensor-core kernel does not take, and
// in the exact profile.
#include "ops/cuda/latent_keys.cuh"

namespace motley::cuda {
namespace {

constexpr int kThreads = 256;
constexpr int kTile = 256;    // keys at a time
constexpr int kMaxEach = 16;  // elements of the result to a thread

__device__ float element(const std::byte* row, bool is_bf16, int i) {
  if (is_bf16) return __bfloat162float(reinterpret_cast<const __nv_bfloat16*>(row)[i]);
  return reinterpret_cast<const float*>(row)[i];
}

struct Shared {
  const std::byte* keys[kTile];
  float p[kTile];
  float partial[kThreads / 32];
  float highest[kThreads / 32];
};

// Scores of a tile's keys, a warp each, lanes along the row.
__device__ void score_tile(const LatentCall& call, const float* q, int count, Shared& shared) {
  const int lane = static_cast<int>(threadIdx.x) % 32;
  for (int key = static_cast<int>(threadIdx.x) / 32; key < count; key += kThreads / 32) {
    const std::byte* row = shared.keys[key];
    float sum = 0;
    if (row != nullptr) {
      for (int i = lane; i < call.width; i += 32) {
        sum = fmaf(q[i], element(row, call.is_bf16, i), sum);
      }
    }
    sum = warp_sum(sum);
    if (lane == 0) shared.p[key] = row == nullptr ? -INFINITY : sum * call.scale;
  }
}

__device__ float block_max(float value, Shared& shared) {
  value = warp_max(value);
  if (threadIdx.x % 32 == 0) shared.highest[threadIdx.x / 32] = value;
  __syncthreads();
#pragma unroll
  for (int warp = 0; warp < kThreads / 32; ++warp) value = fmaxf(value, shared.highest[warp]);
  return value;
}

// Grid: (chunks, heads, rows).
__global__ void __launch_bounds__(kThreads)
    latent_scalar_kernel(const __grid_constant__ LatentCall call) {
  __shared__ Shared shared;
  const LatentRow row = call.rows[blockIdx.z];
  const LatentKeys keys = find_latent_keys(call, row);
  const LatentChunk chunk = find_latent_chunk(call, static_cast<int>(blockIdx.x), keys.count);
  const int head = static_cast<int>(blockIdx.y);
  const int thread = static_cast<int>(threadIdx.x);
  const float* q = call.q + row.row * call.q_stride + int64_t{head} * call.width;
  float out[kMaxEach] = {};
  float highest = -INFINITY;
  float total = 0;
  for (int first = 0; first < chunk.count; first += kTile) {
    const int count = min(kTile, chunk.count - first);
    if (thread < count) shared.keys[thread] = keys.at(chunk.first + first + thread);
    __syncthreads();
    score_tile(call, q, count, shared);
    __syncthreads();
    const float score = thread < count ? shared.p[thread] : -INFINITY;
    const float before = highest;
    highest = fmaxf(highest, block_max(score, shared));
    const float base = highest == -INFINITY ? 0.0f : highest;
    const float p = expf(score - base);
    if (thread < count) shared.p[thread] = p;
    const float rescale = expf(before - base);
    total = total * rescale + block_sum<kThreads / 32>(p, shared.partial);
#pragma unroll
    for (int e = 0; e < kMaxEach; ++e) {
      const int i = thread + e * kThreads;
      if (i >= call.rank) break;
      float sum = out[e] * rescale;
      for (int key = 0; key < count; ++key) {
        if (shared.keys[key] == nullptr) continue;
        sum = fmaf(shared.p[key], element(shared.keys[key], call.is_bf16, i), sum);
      }
      out[e] = sum;
    }
    __syncthreads();
  }
  const LatentTarget target =
      find_latent_target(call, row, blockIdx.z, static_cast<int>(blockIdx.x));
#pragma unroll
  for (int e = 0; e < kMaxEach; ++e) {
    const int i = thread + e * kThreads;
    if (i < call.rank)
      target.out[int64_t{head} * call.rank + i] = total > 0 ? out[e] / total : 0.0f;
  }
  if (thread == 0) target.lse[head] = total > 0 ? highest + logf(total) : -INFINITY;
}

}  // namespace

void latent_scalar(CudaStream& stream, const LatentCall& call, int64_t rows) {
  if (call.rank > kMaxEach * kThreads) {
    stream.note(cudaErrorNotSupported, "latent.attend: ranks over 4096");
    return;
  }
  const dim3 grid(static_cast<unsigned>(call.chunks), static_cast<unsigned>(call.heads),
                  static_cast<unsigned>(rows));
  latent_scalar_kernel<<<grid, kThreads, 0, stream.handle()>>>(call);
  stream.check_launch("latent.attend (scalar)");
}

}  // namespace motley::cuda
