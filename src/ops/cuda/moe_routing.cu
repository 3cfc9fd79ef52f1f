#include "ops/cuda/cuda_stream.h"
#include "ops/cuda/device_math.cuh"
#include "ops/cuda/moe_kernels.h"

namespace motley::cuda {
namespace {

constexpr int kWarps = 4;
constexpr int kMaxPerLane = 32;  // experts / 32
constexpr int kMaxChosen = 32;   // experts per token

struct Call {
  ConstRows logits;
  RowsOf<const int32_t> forced;
  RowsOf<int32_t> experts;
  Rows weights;
  int64_t rows;
  int expert_count;
  int chosen;
  bool normalise;
};

// Experts lane, lane + 32, .. of a row.
struct LaneLogits {
  float value[kMaxPerLane];
};

// The best expert not yet taken: score descending, then index ascending.
__device__ int best_expert(const LaneLogits& logits, int per_lane, uint32_t taken, float* score) {
  float best = 0;
  int index = INT32_MAX;
#pragma unroll
  for (int i = 0; i < kMaxPerLane; ++i) {
    if (i >= per_lane || ((taken >> i) & 1u)) continue;
    if (index == INT32_MAX || logits.value[i] > best) {
      best = logits.value[i];
      index = i * 32 + static_cast<int>(threadIdx.x) % 32;
    }
  }
#pragma unroll
  for (int offset = 16; offset > 0; offset /= 2) {
    const float other = __shfl_xor_sync(kFullWarp, best, offset);
    const int other_index = __shfl_xor_sync(kFullWarp, index, offset);
    const bool better =
        index == INT32_MAX || other > best || (other == best && other_index < index);
    if (other_index != INT32_MAX && better) {
      best = other;
      index = other_index;
    }
  }
  *score = best;
  return index;
}

// Sum of e^(logit - maximum) over all experts.
__device__ float partition_sum(const Call& call, const float* logits, float maximum) {
  float sum = 0;
  for (int expert = static_cast<int>(threadIdx.x) % 32; expert < call.expert_count; expert += 32) {
    sum += expf(logits[expert] - maximum);
  }
  return warp_sum(sum);
}

__device__ void choose(const Call& call, int64_t row, const float* logits, int* my_expert,
                       float* maximum) {
  const int lane = static_cast<int>(threadIdx.x) % 32;
  LaneLogits mine;
  uint32_t taken = 0;
#pragma unroll
  for (int i = 0; i < kMaxPerLane; ++i) {
    const int expert = i * 32 + lane;
    mine.value[i] = expert < call.expert_count ? logits[expert] : 0.0f;
    if (expert >= call.expert_count) taken |= 1u << i;
  }
  const int per_lane = (call.expert_count + 31) / 32;
  for (int slot = 0; slot < call.chosen; ++slot) {
    float score = 0;
    const int expert = best_expert(mine, per_lane, taken, &score);
    if (slot == 0) *maximum = score;
    if (expert % 32 == lane) taken |= 1u << (expert / 32);
    if (slot == lane) *my_expert = expert;
  }
  if (call.forced.data != nullptr && call.forced.row(row)[0] >= 0 && lane < call.chosen) {
    *my_expert = call.forced.row(row)[lane];
  }
}

// One warp per row; lane i < chosen holds one chosen expert.
__global__ void __launch_bounds__(32 * kWarps) route_kernel(Call call) {
  const int64_t row = static_cast<int64_t>(blockIdx.x) * kWarps + threadIdx.x / 32;
  if (row >= call.rows) return;
  const int lane = static_cast<int>(threadIdx.x) % 32;
  const float* logits = call.logits.row(row);
  int expert = INT32_MAX;
  float maximum = 0;
  choose(call, row, logits, &expert, &maximum);
  int rank = 0;
  for (int other = 0; other < call.chosen; ++other) {
    if (__shfl_sync(kFullWarp, expert, other) < expert) ++rank;
  }
  const bool mine = lane < call.chosen;
  const float weight = mine ? expf(logits[expert] - maximum) : 0.0f;
  float total = 0;
  if (call.normalise) {
    for (int slot = 0; slot < call.chosen; ++slot) {  // in ascending order of expert
      const unsigned holder = __ballot_sync(kFullWarp, mine && rank == slot);
      total += __shfl_sync(kFullWarp, weight, __ffs(static_cast<int>(holder)) - 1);
    }
  } else {
    total = partition_sum(call, logits, maximum);
  }
  if (!mine) return;
  call.experts.row(row)[rank] = expert;
  call.weights.row(row)[rank] = weight / total;
}

constexpr int kCombineThreads = 256;

__global__ void __launch_bounds__(kCombineThreads)
    combine_kernel(ConstRows pair_out, ConstRows weights, ConstRows shared, Rows y, int chosen,
                   int dim) {
  const int64_t row = blockIdx.x;
  const int col = static_cast<int>(blockIdx.y * kCombineThreads + threadIdx.x);
  if (col >= dim) return;
  float sum = 0;
  for (int slot = 0; slot < chosen; ++slot) {
    sum = fmaf(weights.row(row)[slot], pair_out.row(row * chosen + slot)[col], sum);
  }
  if (shared.data != nullptr) sum += shared.row(row)[col];
  y.row(row)[col] = sum;
}

}  // namespace

void route_softmax(Stream& any, const ConstTensorView& logits, RoutingParams params,
                   const ConstTensorView& forced, const Routing& routing) {
  CudaStream& stream = cuda_stream(any);
  if (logits.cols() > 32 * kMaxPerLane || params.experts_per_token > kMaxChosen) {
    stream.note(cudaErrorNotSupported, "route_softmax: over 1024 experts or 32 per token");
    return;
  }
  if (logits.rows() == 0) return;
  Call call{};
  call.logits = rows_of(logits);
  call.forced = {reinterpret_cast<const int32_t*>(forced.data), forced.row_stride};
  call.experts = {reinterpret_cast<int32_t*>(routing.experts.data), routing.experts.row_stride};
  call.weights = rows_of(routing.weights);
  call.rows = logits.rows();
  call.expert_count = static_cast<int>(logits.cols());
  call.chosen = params.experts_per_token;
  call.normalise = params.normalise;
  route_kernel<<<grid_of(call.rows, kWarps), 32 * kWarps, 0, stream.handle()>>>(call);
  stream.check_launch("route_softmax");
}

void combine(Stream& any, const ConstTensorView& pair_out, const Routing& routing,
             const ConstTensorView& shared, const TensorView& y) {
  if (y.rows() == 0) return;
  CudaStream& stream = cuda_stream(any);
  const dim3 grid(static_cast<unsigned>(y.rows()), grid_of(y.cols(), kCombineThreads));
  combine_kernel<<<grid, kCombineThreads, 0, stream.handle()>>>(
      rows_of(pair_out), rows_of(static_cast<ConstTensorView>(routing.weights)), rows_of(shared),
      rows_of(y), static_cast<int>(routing.weights.cols()), static_cast<int>(y.cols()));
  stream.check_launch("combine");
}

}  // namespace motley::cuda
