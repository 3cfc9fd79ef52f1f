// The coefficients of hyper-connections and the mix of the streams; contract in
// ops/hyper_connection.h.
//
// A row's dots with the weights are cut into slices of kSlice columns, each summed by one warp and
// all of them in order by another kernel: few rows still spread over the device, and a row's sums
// do not depend on the others (R5).
#include "ops/cuda/cuda_stream.h"
#include "ops/cuda/device_math.cuh"
#include "ops/cuda/hyper_kernels.h"

namespace motley::cuda {
namespace {

constexpr int kThreads = 256;
constexpr int kWarps = kThreads / 32;
constexpr int kSlice = 512;
constexpr int kRows = 4;      // whose dots a warp makes at a time,
constexpr int kOutputs = 24;  // for so many coefficients: all of four streams
constexpr int kDots = kRows * kOutputs;
constexpr int64_t kFewRows = 32;
constexpr int kMostOutputs = kMostStreams * (2 + kMostStreams);

struct MixCall {
  ConstRows streams;
  ConstRows fn;
  const float* base;
  const float* scale;
  Rows coefficients;
  Rows x;
  float* parts;  // [rows][slices][outputs + 1]: dots, and the sum of squares
  int64_t rows;
  int slices;
  int outputs;
  int dim;  // streams * hidden
  int hidden;
  HyperParams params;
};

// Four columns of a row; zeros from `dim` on.
template <bool kVector>
__device__ float4 load_four(const float* row, int col, int dim) {
  if (col >= dim) return make_float4(0, 0, 0, 0);
  if constexpr (kVector) return *reinterpret_cast<const float4*>(row + col);
  return make_float4(row[col], col + 1 < dim ? row[col + 1] : 0.0f,
                     col + 2 < dim ? row[col + 2] : 0.0f, col + 3 < dim ? row[col + 3] : 0.0f);
}

__device__ float dot_four(const float4& a, const float4& b, float sum) {
  return fmaf(a.w, b.w, fmaf(a.z, b.z, fmaf(a.y, b.y, fmaf(a.x, b.x, sum))));
}

// A lane keeps one half of its first 2 kHalf values, that of its bit kLane, and gives the other
// away.
template <int kHalf, int kLane>
__device__ void halve_sums(float (&values)[kDots]) {
  const bool upper = (threadIdx.x & kLane) != 0;
#pragma unroll
  for (int i = 0; i < kHalf; ++i) {
    const float kept = upper ? values[kHalf + i] : values[i];
    const float given = upper ? values[i] : values[kHalf + i];
    values[i] = kept + __shfl_xor_sync(kFullWarp, given, kLane);
  }
}

// Sums of the values over the warp: lane i gets those of values 3 i, 3 i + 1, 3 i + 2. One exchange
// per value, where a sum of each would take five.
__device__ void spread_sums(float (&values)[kDots]) {
  static_assert(kDots == 96);
  halve_sums<48, 16>(values);
  halve_sums<24, 8>(values);
  halve_sums<12, 4>(values);
  halve_sums<6, 2>(values);
  halve_sums<3, 1>(values);
}

// The dots of kRows rows with kOutputs coefficients' weights over a slice, by one warp.
template <bool kVector>
__device__ void sum_slice(const MixCall& call, int64_t first_row, int first_output,
                          float (&dots)[kDots]) {
  const int first = static_cast<int>(blockIdx.x) * kSlice + static_cast<int>(threadIdx.x) % 32 * 4;
#pragma unroll
  for (int i = 0; i < kDots; ++i) dots[i] = 0;
#pragma unroll 1
  for (int col = first; col < first + kSlice; col += 128) {
    float4 x[kRows];
#pragma unroll
    for (int r = 0; r < kRows; ++r) {
      const int64_t row = first_row + r < call.rows ? first_row + r : call.rows - 1;
      x[r] = load_four<kVector>(call.streams.row(row), col, call.dim);
    }
#pragma unroll
    for (int o = 0; o < kOutputs; ++o) {
      const int output = min(first_output + o, call.outputs - 1);
      const float4 w = load_four<kVector>(call.fn.row(output), col, call.dim);
#pragma unroll
      for (int r = 0; r < kRows; ++r) {
        dots[r * kOutputs + o] = dot_four(w, x[r], dots[r * kOutputs + o]);
      }
    }
  }
}

template <bool kVector>
__device__ void sum_squares(const MixCall& call, int64_t row, float* part) {
  const int first = static_cast<int>(blockIdx.x) * kSlice + static_cast<int>(threadIdx.x) % 32 * 4;
  float sum = 0;
#pragma unroll
  for (int i = 0; i < kSlice; i += 128) {
    const float4 x = load_four<kVector>(call.streams.row(row), first + i, call.dim);
    sum = dot_four(x, x, sum);
  }
  sum = warp_sum(sum);
  if (threadIdx.x % 32 == 0) part[call.outputs] = sum;
}

// Grid: (slices, groups of kWarps * kRows rows).
template <bool kVector>
__global__ void __launch_bounds__(kThreads) dots_kernel(const __grid_constant__ MixCall call) {
  const int lane = static_cast<int>(threadIdx.x) % 32;
  const int64_t first_row =
      (int64_t{blockIdx.y} * kWarps + static_cast<int>(threadIdx.x) / 32) * kRows;
  if (first_row >= call.rows) return;
  const auto part_of = [&](int64_t row) {
    return call.parts + (row * call.slices + blockIdx.x) * (call.outputs + 1);
  };
#pragma unroll 1
  for (int first = 0; first < call.outputs; first += kOutputs) {
    float dots[kDots];
    sum_slice<kVector>(call, first_row, first, dots);
    spread_sums(dots);
#pragma unroll
    for (int i = 0; i < kDots / 32; ++i) {
      const int at = lane * (kDots / 32) + i;
      const int64_t row = first_row + at / kOutputs;
      const int output = first + at % kOutputs;
      if (row < call.rows && output < call.outputs) part_of(row)[output] = dots[i];
    }
  }
#pragma unroll 1
  for (int64_t row = first_row; row < first_row + kRows && row < call.rows; ++row) {
    sum_squares<kVector>(call, row, part_of(row));
  }
}

// The same sums where rows are few: a warp per coefficient, so that all loads travel at once.
// Grid: (slices, rows).
template <bool kVector>
__global__ void __launch_bounds__(kThreads) few_dots_kernel(const __grid_constant__ MixCall call) {
  const int lane = static_cast<int>(threadIdx.x) % 32;
  const int warp = static_cast<int>(threadIdx.x) / 32;
  const int64_t row = blockIdx.y;
  const int first = static_cast<int>(blockIdx.x) * kSlice + lane * 4;
  float* part = call.parts + (row * call.slices + blockIdx.x) * (call.outputs + 1);
  float4 x[kSlice / 128];
#pragma unroll
  for (int i = 0; i < kSlice / 128; ++i) {
    x[i] = load_four<kVector>(call.streams.row(row), first + 128 * i, call.dim);
  }
#pragma unroll 3
  for (int output = warp; output < call.outputs; output += kWarps) {
    float sum = 0;
#pragma unroll
    for (int i = 0; i < kSlice / 128; ++i) {
      sum = dot_four(load_four<kVector>(call.fn.row(output), first + 128 * i, call.dim), x[i], sum);
    }
    sum = warp_sum(sum);
    if (lane == 0) part[output] = sum;
  }
  if (warp == 0) sum_squares<kVector>(call, row, part);
}

// C [n, n]: softmax of every row, then Sinkhorn's alternation, columns first. One warp; a lane has
// entries lane and lane + 32, and c is where they meet.
__device__ void normalise_links(const HyperParams& params, float* c) {
  constexpr int kEach = kMostStreams * kMostStreams / 32;
  const int n = params.streams;
  const int lane = static_cast<int>(threadIdx.x) % 32;
  int row[kEach];
  int col[kEach];
  float value[kEach];
#pragma unroll
  for (int e = 0; e < kEach; ++e) {
    const int at = min(lane + 32 * e, n * n - 1);
    row[e] = at / n;
    col[e] = at % n;
    value[e] = c[at];
  }
  const auto share = [&] {
    __syncwarp();
#pragma unroll
    for (int e = 0; e < kEach; ++e) {
      if (lane + 32 * e < n * n) c[lane + 32 * e] = value[e];
    }
    __syncwarp();
  };
  const auto divide_by_sum = [&](bool by_row, float start) {
#pragma unroll
    for (int e = 0; e < kEach; ++e) {
      float sum = start;
#pragma unroll
      for (int k = 0; k < kMostStreams; ++k) {
        if (k < n) sum += by_row ? c[row[e] * n + k] : c[k * n + col[e]];
      }
      value[e] = __fdividef(value[e], sum);
    }
  };
#pragma unroll
  for (int e = 0; e < kEach; ++e) {
    float highest = value[e];
#pragma unroll
    for (int k = 0; k < kMostStreams; ++k) {
      if (k < n) highest = fmaxf(highest, c[row[e] * n + k]);
    }
    value[e] = expf(value[e] - highest);
  }
  share();
  divide_by_sum(true, 0.0f);
#pragma unroll
  for (int e = 0; e < kEach; ++e) value[e] += params.epsilon;
  for (int iteration = 0; iteration < params.sinkhorn_iterations; ++iteration) {
    if (iteration > 0) {
      share();
      divide_by_sum(true, params.epsilon);
    }
    share();
    divide_by_sum(false, params.epsilon);
  }
  share();
}

// x = sum_i pre_i R_i.
template <bool kVector>
__device__ void mix_streams(const MixCall& call, int64_t row, const float (&pre)[kMostStreams]) {
  const float* in = call.streams.row(row);
  float* out = call.x.row(row);
#pragma unroll 2
  for (int col = 4 * static_cast<int>(threadIdx.x); col < call.hidden; col += 4 * kThreads) {
    float4 part[kMostStreams];
#pragma unroll
    for (int i = 0; i < kMostStreams; ++i) {
      if (i < call.params.streams) {
        part[i] = load_four<kVector>(in + int64_t{i} * call.hidden, col, call.hidden);
      }
    }
    float4 sum = make_float4(0, 0, 0, 0);
#pragma unroll
    for (int i = 0; i < kMostStreams; ++i) {
      if (i >= call.params.streams) break;
      const float weight = pre[i];
      sum.x = fmaf(weight, part[i].x, sum.x);
      sum.y = fmaf(weight, part[i].y, sum.y);
      sum.z = fmaf(weight, part[i].z, sum.z);
      sum.w = fmaf(weight, part[i].w, sum.w);
    }
    if constexpr (kVector) {
      *reinterpret_cast<float4*>(out + col) = sum;
    } else {
      const float each[4] = {sum.x, sum.y, sum.z, sum.w};
#pragma unroll
      for (int j = 0; j < 4; ++j) {
        if (col + j < call.hidden) out[col + j] = each[j];
      }
    }
  }
}

// A thread block per row: the coefficients, then x.
template <bool kVector>
__global__ void __launch_bounds__(kThreads) finish_kernel(const __grid_constant__ MixCall call) {
  __shared__ float sums[kMostOutputs + 1];
  const int64_t row = blockIdx.x;
  const int n = call.params.streams;
  const int thread = static_cast<int>(threadIdx.x);
  if (thread <= call.outputs) {
    const float* part = call.parts + row * call.slices * (call.outputs + 1) + thread;
    float sum = 0;
#pragma unroll 16
    for (int slice = 0; slice < call.slices; ++slice) sum += part[slice * (call.outputs + 1)];
    sums[thread] = sum;
  }
  __syncthreads();
  float value = 0;
  if (thread < call.outputs) {
    const float mean = sums[call.outputs] / static_cast<float>(call.dim);
    const float scale = call.scale[thread < n ? 0 : thread < 2 * n ? 1 : 2];
    const float inverse_rms = 1.0f / sqrtf(mean + call.params.norm_epsilon);
    value = sums[thread] * inverse_rms * scale + call.base[thread];
    if (thread < n) value = sigmoid(value) + call.params.epsilon;
    if (thread >= n && thread < 2 * n) value = call.params.post_scale * sigmoid(value);
  }
  __syncthreads();
  if (thread < call.outputs) sums[thread] = value;
  __syncthreads();
  float pre[kMostStreams];
#pragma unroll
  for (int i = 0; i < kMostStreams; ++i) pre[i] = i < n ? sums[i] : 0.0f;
  __syncthreads();
  if (thread < 32) normalise_links(call.params, sums + 2 * n);
  mix_streams<kVector>(call, row, pre);
  __syncthreads();
  if (thread < call.outputs) call.coefficients.row(row)[thread] = sums[thread];
}

bool is_vector(const void* data, int64_t stride) {
  return reinterpret_cast<uintptr_t>(data) % 16 == 0 && stride % 4 == 0;
}

template <bool kVector>
void launch(CudaStream& stream, const MixCall& call) {
  const auto slices = static_cast<unsigned>(call.slices);
  if (call.rows <= kFewRows) {
    const dim3 grid(slices, static_cast<unsigned>(call.rows));
    few_dots_kernel<kVector><<<grid, kThreads, 0, stream.handle()>>>(call);
  } else {
    const dim3 grid(slices, grid_of(call.rows, kWarps * kRows));
    dots_kernel<kVector><<<grid, kThreads, 0, stream.handle()>>>(call);
  }
  finish_kernel<kVector><<<static_cast<unsigned>(call.rows), kThreads, 0, stream.handle()>>>(call);
  stream.check_launch("hyper.mix");
}

}  // namespace

void hyper_mix(Stream& any, const ConstTensorView& streams, const HyperWeights& weights,
               const HyperParams& params, const TensorView& coefficients, const TensorView& x) {
  if (x.rows() == 0) return;
  CudaStream& stream = cuda_stream(any);
  Arena::Scope scope(stream.scratch());
  MOTLEY_CHECK(params.streams >= 1 && params.streams <= kMostStreams &&
                   streams.cols() == params.streams * x.cols() && streams.rows() == x.rows() &&
                   coefficients.cols() == params.coefficients(),
               "streams, coefficients and their mix must match");
  MOTLEY_CHECK(weights.fn.shape.elements() == params.coefficients() * streams.cols() &&
                   weights.base.shape.elements() == params.coefficients() &&
                   weights.scale.shape.elements() == 3,
               "weights must match the streams");
  MixCall call{};
  call.streams = rows_of(streams);
  call.fn = {floats_of(weights.fn), streams.cols()};
  call.base = floats_of(weights.base);
  call.scale = floats_of(weights.scale);
  call.coefficients = rows_of(coefficients);
  call.x = rows_of(x);
  call.rows = x.rows();
  call.outputs = static_cast<int>(params.coefficients());
  call.dim = static_cast<int>(streams.cols());
  call.hidden = static_cast<int>(x.cols());
  call.slices = static_cast<int>(divide_up(call.dim, kSlice));
  call.params = params;
  call.parts =
      stream.scratch().allocate<float>(call.rows * call.slices * (int64_t{call.outputs} + 1));
  const bool vector = call.hidden % 4 == 0 && is_vector(call.streams.data, call.streams.stride) &&
                      is_vector(call.fn.data, call.fn.stride) &&
                      is_vector(call.x.data, call.x.stride);
  if (vector) {
    launch<true>(stream, call);
  } else {
    launch<false>(stream, call);
  }
}

}  // namespace motley::cuda
