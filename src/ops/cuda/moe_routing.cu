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
  // Routing by sigmoids.
  const float* bias;  // of the choice, or null
  int groups;
  int kept_groups;
  float scale;
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

// The lane's expert of the `chosen` best (lane i the i-th), or of the forced ones.
__device__ int choose(const Call& call, int64_t row, const LaneLogits& mine, float* maximum) {
  const int lane = static_cast<int>(threadIdx.x) % 32;
  uint32_t taken = 0;
#pragma unroll
  for (int i = 0; i < kMaxPerLane; ++i) {
    if (i * 32 + lane >= call.expert_count) taken |= 1u << i;
  }
  int my_expert = INT32_MAX;
  const int per_lane = (call.expert_count + 31) / 32;
  for (int slot = 0; slot < call.chosen; ++slot) {
    float score = 0;
    const int expert = best_expert(mine, per_lane, taken, &score);
    if (slot == 0) *maximum = score;
    if (expert % 32 == lane) taken |= 1u << (expert / 32);
    if (slot == lane) my_expert = expert;
  }
  if (call.forced.data != nullptr && call.forced.row(row)[0] >= 0 && lane < call.chosen) {
    my_expert = call.forced.row(row)[lane];
  }
  return my_expert;
}

__device__ LaneLogits load_logits(const Call& call, const float* logits) {
  LaneLogits mine;
#pragma unroll
  for (int i = 0; i < kMaxPerLane; ++i) {
    const int expert = i * 32 + static_cast<int>(threadIdx.x) % 32;
    mine.value[i] = expert < call.expert_count ? logits[expert] : 0.0f;
  }
  return mine;
}

// How many of the chosen experts come before this lane's.
__device__ int rank_of(const Call& call, int expert) {
  int rank = 0;
  for (int other = 0; other < call.chosen; ++other) {
    if (__shfl_sync(kFullWarp, expert, other) < expert) ++rank;
  }
  return rank;
}

// Sum of the chosen experts' weights, in ascending order of expert.
__device__ float ordered_sum(const Call& call, bool mine, int rank, float weight) {
  float total = 0;
  for (int slot = 0; slot < call.chosen; ++slot) {
    const unsigned holder = __ballot_sync(kFullWarp, mine && rank == slot);
    total += __shfl_sync(kFullWarp, weight, __ffs(static_cast<int>(holder)) - 1);
  }
  return total;
}

// One warp per row; lane i < chosen holds one chosen expert.
__global__ void __launch_bounds__(32 * kWarps) route_kernel(Call call) {
  const int64_t row = static_cast<int64_t>(blockIdx.x) * kWarps + threadIdx.x / 32;
  if (row >= call.rows) return;
  const int lane = static_cast<int>(threadIdx.x) % 32;
  const float* logits = call.logits.row(row);
  float maximum = 0;
  const int expert = choose(call, row, load_logits(call, logits), &maximum);
  const int rank = rank_of(call, expert);
  const bool mine = lane < call.chosen;
  const float weight = mine ? expf(logits[expert] - maximum) : 0.0f;
  const float total =
      call.normalise ? ordered_sum(call, mine, rank, weight) : partition_sum(call, logits, maximum);
  if (!mine) return;
  call.experts.row(row)[rank] = expert;
  call.weights.row(row)[rank] = weight / total;
}

// Bit g of the result: group g is kept. choice: of all experts, in shared memory.
__device__ uint32_t keep_groups(const Call& call, const float* choice) {
  const int lane = static_cast<int>(threadIdx.x) % 32;
  const int size = call.expert_count / call.groups;
  float best = -INFINITY;
  float second = -INFINITY;
  for (int i = 0; i < size && lane < call.groups; ++i) {
    const float value = choice[lane * size + i];
    second = fmaxf(second, fminf(best, value));
    best = fmaxf(best, value);
  }
  const float score = size == 1 ? best : best + second;
  int rank = 0;
  for (int other = 0; other < call.groups; ++other) {
    const float theirs = __shfl_sync(kFullWarp, score, other);
    if (theirs > score || (theirs == score && other < lane)) ++rank;
  }
  return __ballot_sync(kFullWarp, lane < call.groups && rank < call.kept_groups);
}

// One warp per row, as route_kernel.
__global__ void __launch_bounds__(32 * kWarps)
    route_sigmoid_kernel(const __grid_constant__ Call call) {
  __shared__ float choices[kWarps][32 * kMaxPerLane];
  const int64_t row = static_cast<int64_t>(blockIdx.x) * kWarps + threadIdx.x / 32;
  if (row >= call.rows) return;
  const int lane = static_cast<int>(threadIdx.x) % 32;
  const float* logits = call.logits.row(row);
  LaneLogits choice = load_logits(call, logits);
  float* shared = choices[threadIdx.x / 32];
#pragma unroll
  for (int i = 0; i < kMaxPerLane; ++i) {
    const int expert = i * 32 + lane;
    if (expert >= call.expert_count) break;
    choice.value[i] = sigmoid(choice.value[i]) + (call.bias != nullptr ? call.bias[expert] : 0.0f);
    shared[expert] = choice.value[i];
  }
  if (call.groups > 1) {
    __syncwarp();
    const uint32_t kept = keep_groups(call, shared);
    const int size = call.expert_count / call.groups;
#pragma unroll
    for (int i = 0; i < kMaxPerLane; ++i) {
      const int expert = i * 32 + lane;
      if (expert >= call.expert_count) break;
      if ((kept >> (expert / size) & 1u) == 0) choice.value[i] = -INFINITY;
    }
  }
  float unused = 0;
  const int expert = choose(call, row, choice, &unused);
  const int rank = rank_of(call, expert);
  const bool mine = lane < call.chosen;
  const float weight = mine ? sigmoid(logits[expert]) : 0.0f;
  const float total = call.normalise ? ordered_sum(call, mine, rank, weight) + 1e-20f : 1.0f;
  if (!mine) return;
  call.experts.row(row)[rank] = expert;
  call.weights.row(row)[rank] = weight / total * call.scale;
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

Call make_call(const ConstTensorView& logits, int chosen, const ConstTensorView& forced,
               const Routing& routing) {
  Call call{};
  call.logits = rows_of(logits);
  call.forced = {reinterpret_cast<const int32_t*>(forced.data), forced.row_stride};
  call.experts = {reinterpret_cast<int32_t*>(routing.experts.data), routing.experts.row_stride};
  call.weights = rows_of(routing.weights);
  call.rows = logits.rows();
  call.expert_count = static_cast<int>(logits.cols());
  call.chosen = chosen;
  return call;
}

bool is_supported(CudaStream& stream, const Call& call) {
  if (call.expert_count <= 32 * kMaxPerLane && call.chosen <= kMaxChosen && call.groups <= 32) {
    return true;
  }
  stream.note(cudaErrorNotSupported, "routing: over 1024 experts, 32 per token or 32 groups");
  return false;
}

}  // namespace

void route_softmax(Stream& any, const ConstTensorView& logits, RoutingParams params,
                   const ConstTensorView& forced, const Routing& routing) {
  CudaStream& stream = cuda_stream(any);
  Call call = make_call(logits, params.experts_per_token, forced, routing);
  call.normalise = params.normalise;
  if (call.rows == 0 || !is_supported(stream, call)) return;
  route_kernel<<<grid_of(call.rows, kWarps), 32 * kWarps, 0, stream.handle()>>>(call);
  stream.check_launch("route_softmax");
}

void route_sigmoid(Stream& any, const ConstTensorView& logits, const ConstTensorView& bias,
                   SigmoidRoutingParams params, const ConstTensorView& forced,
                   const Routing& routing) {
  CudaStream& stream = cuda_stream(any);
  Call call = make_call(logits, params.experts_per_token, forced, routing);
  call.normalise = params.normalise;
  call.bias = floats_of(bias);
  call.groups = params.groups;
  call.kept_groups = params.kept_groups;
  call.scale = params.scale;
  if (call.rows == 0 || !is_supported(stream, call)) return;
  MOTLEY_CHECK(call.groups >= 1 && call.expert_count % call.groups == 0,
               "groups must divide the experts");
  route_sigmoid_kernel<<<grid_of(call.rows, kWarps), 32 * kWarps, 0, stream.handle()>>>(call);
  stream.check_launch("route_sigmoid");
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
