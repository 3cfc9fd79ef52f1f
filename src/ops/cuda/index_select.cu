// The best scores of each row in a total order: score descending, then index ascending.
//
// One thread block per row finds the key of the last score that is chosen, eight bits at a time by
// histograms, then lists in ascending index what is above it and the first of those equal to it.
#include "ops/cuda/cuda_ops.h"
#include "ops/cuda/cuda_stream.h"
#include "ops/cuda/device_math.cuh"
#include "ops/cuda/index_kernels.h"

namespace motley::cuda {
namespace {

constexpr int kThreads = 1024;
constexpr int kEach = 8;   // neighbouring scores of a thread at a time, when they are listed,
constexpr int kBatch = 8;  // and scores when they are counted
constexpr int kBins = 256;

struct Call {
  ConstRows scores;
  RowsOf<const int32_t> candidates;
  RowsOf<const int32_t> forced;  // data may be null
  RowsOf<int32_t> chosen;
  RowsOf<int32_t> counts;
  int top_k;
};

// Larger for larger scores; equal for 0 and -0, NaN as -infinity.
__device__ uint32_t order_key(float score) {
  if (score != score) score = -INFINITY;
  const uint32_t bits = __float_as_uint(score + 0.0f);
  return (bits & 0x80000000u) != 0 ? ~bits : bits | 0x80000000u;
}

struct Shared {
  int bins[kBins];
  int warp_sums[kThreads / 32];
  int bin;    // that holds the last chosen score
  int above;  // scores in the bins over it
};

// Counts a digit; many scores of a row may be equal (relu gives zeros), so lanes that agree count
// as one.
__device__ void count_digit(Shared& shared, bool wanted, int digit) {
  const unsigned same = __match_any_sync(kFullWarp, wanted ? digit : -1);
  const int lane = static_cast<int>(threadIdx.x) % 32;
  if (wanted && lane == __ffs(static_cast<int>(same)) - 1) {
    atomicAdd(&shared.bins[digit], __popc(same));
  }
}

// The bin in which the `left` best end, and how many scores are above it. One warp.
__device__ void find_bin(Shared& shared, int left) {
  const int lane = static_cast<int>(threadIdx.x);
  constexpr int kOwn = kBins / 32;
  // Lane 0 has the highest bins.
  const int first = kBins - kOwn * (lane + 1);
  int sum = 0;
  for (int i = 0; i < kOwn; ++i) sum += shared.bins[first + i];
  int before = sum;
  for (int offset = 1; offset < 32; offset *= 2) {
    const int other = __shfl_up_sync(kFullWarp, before, offset);
    if (lane >= offset) before += other;
  }
  int above = before - sum;
  if (above >= left || above + sum < left) return;
  for (int bin = first + kOwn - 1; bin >= first; --bin) {
    if (above + shared.bins[bin] >= left) {
      shared.bin = bin;
      shared.above = above;
      return;
    }
    above += shared.bins[bin];
  }
}

// The order key of the last chosen score, and how many of the scores with it are chosen.
struct Threshold {
  uint32_t key;
  int equal;
};

__device__ Threshold find_threshold(const float* scores, int count, int top_k, Shared& shared) {
  uint32_t prefix = 0;
  int left = top_k;
  for (int shift = 24; shift >= 0; shift -= 8) {
    for (int i = static_cast<int>(threadIdx.x); i < kBins; i += kThreads) shared.bins[i] = 0;
    __syncthreads();
    for (int base = 0; base < count; base += kBatch * kThreads) {
      uint32_t keys[kBatch];
#pragma unroll
      for (int e = 0; e < kBatch; ++e) {
        const int i = base + e * kThreads + static_cast<int>(threadIdx.x);
        keys[e] = i < count ? order_key(scores[i]) : 0;
      }
#pragma unroll
      for (int e = 0; e < kBatch; ++e) {
        const int i = base + e * kThreads + static_cast<int>(threadIdx.x);
        const bool wanted = i < count && (shift == 24 || keys[e] >> (shift + 8) == prefix);
        count_digit(shared, wanted, static_cast<int>(keys[e] >> shift & 0xFF));
      }
    }
    __syncthreads();
    if (threadIdx.x < 32) find_bin(shared, left);
    __syncthreads();
    prefix = prefix << 8 | static_cast<uint32_t>(shared.bin);
    left -= shared.above;
    __syncthreads();
  }
  return {prefix, left};
}

// Sum of `value` over the threads before this one, and over all.
__device__ int sum_before(int value, Shared& shared, int* all) {
  const int lane = static_cast<int>(threadIdx.x) % 32;
  const int warp = static_cast<int>(threadIdx.x) / 32;
  int sum = value;
  for (int offset = 1; offset < 32; offset *= 2) {
    const int other = __shfl_up_sync(kFullWarp, sum, offset);
    if (lane >= offset) sum += other;
  }
  if (lane == 31) shared.warp_sums[warp] = sum;
  __syncthreads();
  int total = shared.warp_sums[lane];
  for (int offset = 1; offset < 32; offset *= 2) {
    const int other = __shfl_up_sync(kFullWarp, total, offset);
    if (lane >= offset) total += other;
  }
  *all = __shfl_sync(kFullWarp, total, 31);
  const int warps_before = __shfl_sync(kFullWarp, total, (warp + 31) % 32);
  __syncthreads();
  return sum - value + (warp == 0 ? 0 : warps_before);
}

__device__ void list_chosen(const float* scores, int count, const Threshold& threshold,
                            int32_t* chosen, Shared& shared) {
  int above = 0;  // scores over the threshold so far, and equal to it
  int equal = 0;
  for (int base = 0; base < count; base += kThreads * kEach) {
    const int first = base + static_cast<int>(threadIdx.x) * kEach;
    uint32_t keys[kEach];
    int mine = 0;  // scores above in the low half, equal ones in the high
#pragma unroll
    for (int e = 0; e < kEach; ++e) {
      keys[e] = first + e < count ? order_key(scores[first + e]) : 0;
      if (first + e >= count) continue;
      if (keys[e] > threshold.key) mine += 1;
      if (keys[e] == threshold.key) mine += 1 << 16;
    }
    int all = 0;
    const int before = sum_before(mine, shared, &all);
    int above_here = above + (before & 0xFFFF);
    int equal_here = equal + (before >> 16);
#pragma unroll
    for (int e = 0; e < kEach; ++e) {
      if (first + e >= count) break;
      const int place = above_here + min(equal_here, threshold.equal);
      const bool is_equal = keys[e] == threshold.key;
      if (keys[e] > threshold.key || (is_equal && equal_here < threshold.equal)) {
        chosen[place] = first + e;
      }
      if (keys[e] > threshold.key) ++above_here;
      if (is_equal) ++equal_here;
    }
    above += all & 0xFFFF;
    equal += all >> 16;
  }
}

// The forced choice of a row, up to the first -1.
__device__ int copy_forced(const int32_t* forced, int top_k, int32_t* chosen, Shared& shared) {
  if (threadIdx.x == 0) shared.bin = top_k;
  __syncthreads();
  for (int i = static_cast<int>(threadIdx.x); i < top_k; i += kThreads) {
    if (forced[i] < 0) atomicMin(&shared.bin, i);
  }
  __syncthreads();
  for (int i = static_cast<int>(threadIdx.x); i < shared.bin; i += kThreads) chosen[i] = forced[i];
  return shared.bin;
}

__global__ void __launch_bounds__(kThreads) select_kernel(const __grid_constant__ Call call) {
  __shared__ Shared shared;
  const int64_t row = blockIdx.x;
  int32_t* chosen = call.chosen.row(row);
  int count = call.candidates.row(row)[0];
  if (call.forced.data != nullptr && call.forced.row(row)[0] >= 0) {
    count = copy_forced(call.forced.row(row), call.top_k, chosen, shared);
  } else if (count <= call.top_k) {
    for (int i = static_cast<int>(threadIdx.x); i < count; i += kThreads) chosen[i] = i;
  } else {
    const float* scores = call.scores.row(row);
    const Threshold threshold = find_threshold(scores, count, call.top_k, shared);
    list_chosen(scores, count, threshold, chosen, shared);
    count = call.top_k;
  }
  if (threadIdx.x == 0) call.counts.row(row)[0] = count;
}

template <typename T, typename View>
RowsOf<T> ints_of(const View& view) {
  return {reinterpret_cast<T*>(view.data), view.row_stride};
}

}  // namespace

void index_select(Stream& any, const IndexSelectArgs& args) {
  if (args.scores.rows() == 0) return;
  CudaStream& stream = cuda_stream(any);
  Call call{};
  call.scores = rows_of(args.scores);
  call.candidates = ints_of<const int32_t>(args.candidates);
  call.forced = ints_of<const int32_t>(args.forced);
  call.chosen = ints_of<int32_t>(args.chosen);
  call.counts = ints_of<int32_t>(args.counts);
  call.top_k = static_cast<int>(args.chosen.cols());
  select_kernel<<<static_cast<unsigned>(args.scores.rows()), kThreads, 0, stream.handle()>>>(call);
  stream.check_launch("index.select");
}

}  // namespace motley::cuda
