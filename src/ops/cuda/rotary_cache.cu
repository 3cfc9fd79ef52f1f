#include <cmath>
#include <vector>

#include "ops/cuda/attention_kernels.h"
#include "ops/cuda/cuda_stream.h"
#include "ops/cuda/device_math.cuh"

namespace motley::cuda {
namespace {

constexpr int kThreads = 128;
constexpr int kMaxPairs = 256;  // rotary_dim / 2

struct NormRotaryCall {
  ConstRows x;
  Rows y;
  const float* weight;
  const double* frequencies;  // [pairs]
  const int64_t* positions;   // [rows], -1: not in any segment
  int64_t head_stride;
  int heads;
  int dim;
  int pairs;
  float epsilon;
  float weight_offset;
};

// One block per row; a warp per head. The angle is formed in float64: a position of 2^18 leaves
// float32 no digits for it.
__global__ void __launch_bounds__(kThreads) norm_rotary_kernel(NormRotaryCall call) {
  __shared__ float cosines[kMaxPairs];
  __shared__ float sines[kMaxPairs];
  const int64_t row = blockIdx.x;
  const int64_t position = call.positions[row];
  if (position < 0) return;
  for (int i = static_cast<int>(threadIdx.x); i < call.pairs; i += kThreads) {
    constexpr double kTurn = 6.283185307179586476925286766559;
    const double angle = static_cast<double>(position) * call.frequencies[i];
    const auto reduced = static_cast<float>(angle - kTurn * rint(angle / kTurn));
    sincosf(reduced, &sines[i], &cosines[i]);
  }
  __syncthreads();
  const int lane = static_cast<int>(threadIdx.x) % 32;
  for (int head = static_cast<int>(threadIdx.x) / 32; head < call.heads; head += kThreads / 32) {
    const float* in = call.x.row(row) + head * call.head_stride;
    float* out = call.y.row(row) + int64_t{head} * call.dim;
    float sum = 0;
    for (int i = lane; i < call.dim; i += 32) sum += in[i] * in[i];
    const float scale = rsqrtf(warp_sum(sum) / static_cast<float>(call.dim) + call.epsilon);
    for (int i = lane; i < call.pairs; i += 32) {
      const int j = i + call.pairs;
      const float first = in[i] * scale * (call.weight[i] + call.weight_offset);
      const float second = in[j] * scale * (call.weight[j] + call.weight_offset);
      out[i] = first * cosines[i] - second * sines[i];
      out[j] = second * cosines[i] + first * sines[i];
    }
    for (int i = 2 * call.pairs + lane; i < call.dim; i += 32) {
      out[i] = in[i] * scale * (call.weight[i] + call.weight_offset);
    }
  }
}

// Where a row's keys and values go; page null: this shard does not hold the row.
struct CacheSlot {
  std::byte* page;
  int64_t slot;
};

struct CacheCall {
  ConstRows k;
  ConstRows v;
  const CacheSlot* slots;  // [rows]
  int dim;
  int64_t plane;  // elements of one key or value plane
};

template <typename T>
__device__ void store_element(T* target, float value) {
  if constexpr (sizeof(T) == 2) {
    *target = __float2bfloat16_rn(value);
  } else {
    *target = value;
  }
}

// Grid: (rows, kv heads).
template <typename T>
__global__ void __launch_bounds__(kThreads) cache_write_kernel(CacheCall call) {
  const int64_t row = blockIdx.x;
  const int head = static_cast<int>(blockIdx.y);
  const CacheSlot slot = call.slots[row];
  if (slot.page == nullptr) return;
  T* keys = reinterpret_cast<T*>(slot.page) + 2 * head * call.plane + slot.slot * call.dim;
  T* values = keys + call.plane;
  const float* k = call.k.row(row) + int64_t{head} * call.dim;
  const float* v = call.v.row(row) + int64_t{head} * call.dim;
  for (int i = static_cast<int>(threadIdx.x); i < call.dim; i += kThreads) {
    store_element(keys + i, k[i]);
    store_element(values + i, v[i]);
  }
}

}  // namespace

void head_norm_rotary(Stream& any, const HeadNormRotaryArgs& args) {
  CudaStream& stream = cuda_stream(any);
  Arena::Scope scope(stream.scratch());
  const int64_t rows = args.x.rows();
  if (rows == 0) return;
  const int pairs = args.rotary.rotary_dim / 2;
  if (pairs > kMaxPairs) {
    stream.note(cudaErrorNotSupported, "head_norm_rotary: over 512 rotary dimensions");
    return;
  }
  std::vector<double> frequencies(static_cast<size_t>(pairs));
  for (int i = 0; i < pairs; ++i) {
    frequencies[static_cast<size_t>(i)] =
        std::pow(args.rotary.theta, -2.0 * i / args.rotary.rotary_dim);
  }
  std::vector<int64_t> positions(static_cast<size_t>(rows), -1);
  for (const RowSegment& segment : args.segments) {
    for (int32_t i = 0; i < segment.rows; ++i) {
      positions[static_cast<size_t>(segment.first_row + i)] = segment.first_position.value + i;
    }
  }
  NormRotaryCall call{};
  call.x = rows_of(args.x);
  call.y = rows_of(args.y);
  call.weight = floats_of(args.weight);
  call.frequencies = stream.upload<double>(frequencies);
  call.positions = stream.upload<int64_t>(positions);
  call.head_stride = args.x.shape[2];
  call.heads = static_cast<int>(args.x.shape[1]);
  call.dim = static_cast<int>(args.y.shape[2]);
  call.pairs = pairs;
  call.epsilon = args.epsilon;
  call.weight_offset = args.weight_offset;
  norm_rotary_kernel<<<static_cast<unsigned>(rows), kThreads, 0, stream.handle()>>>(call);
  stream.check_launch("head_norm_rotary");
}

void cache_write(Stream& any, const ConstTensorView& k, const ConstTensorView& v,
                 std::span<const AttentionSegment> segments) {
  CudaStream& stream = cuda_stream(any);
  Arena::Scope scope(stream.scratch());
  const int64_t rows = k.rows();
  if (rows == 0 || segments.empty()) return;
  std::vector<CacheSlot> slots(static_cast<size_t>(rows), CacheSlot{nullptr, 0});
  const PageLayout& layout = segments[0].cache.layout;
  for (const AttentionSegment& segment : segments) {
    for (int32_t i = 0; i < segment.rows.rows; ++i) {
      const int64_t position = segment.rows.first_position.value + i;
      if (!segment.cache.shard.holds(position)) continue;
      const int64_t token = segment.cache.shard.tokens_below(position);
      slots[static_cast<size_t>(segment.rows.first_row + i)] = {
          segment.cache.pages[static_cast<size_t>(token / layout.tokens_per_page)],
          token % layout.tokens_per_page};
    }
  }
  const CacheCall call{rows_of(k), rows_of(v), stream.upload<CacheSlot>(slots), layout.head_dim,
                       layout.plane_elements()};
  const dim3 grid(static_cast<unsigned>(rows), static_cast<unsigned>(layout.kv_heads));
  if (layout.dtype == DType::kBf16) {
    cache_write_kernel<__nv_bfloat16><<<grid, kThreads, 0, stream.handle()>>>(call);
  } else {
    cache_write_kernel<float><<<grid, kThreads, 0, stream.handle()>>>(call);
  }
  stream.check_launch("cache_write");
}

}  // namespace motley::cuda
