// What hyper-connections do column by column; contracts in ops/hyper_connection.h.
#include "ops/cuda/cuda_ops.h"
#include "ops/cuda/cuda_stream.h"
#include "ops/cuda/device_math.cuh"
#include "ops/cuda/hyper_kernels.h"

namespace motley::cuda {
namespace {

constexpr int kThreads = 256;

struct StreamsCall {
  Rows streams;     // [rows, n, hidden]
  ConstRows given;  // x or y [rows, hidden]
  Rows mean;
  ConstRows coefficients;
  int streams_count;
  int hidden;
};

// kWidth neighbouring columns, moved at once.
template <int kWidth>
struct alignas(4 * kWidth) Columns {
  float value[kWidth];
};

template <int kWidth>
__device__ Columns<kWidth> load_columns(const float* from) {
  return *reinterpret_cast<const Columns<kWidth>*>(from);
}

template <int kWidth>
__device__ void store_columns(float* to, const Columns<kWidth>& columns) {
  *reinterpret_cast<Columns<kWidth>*>(to) = columns;
}

enum class StreamsOp { kMerge, kSpread, kMean };

// Grid: (rows, blocks of kWidth * kThreads columns).
template <StreamsOp kOp, int kWidth>
__global__ void __launch_bounds__(kThreads)
    streams_kernel(const __grid_constant__ StreamsCall call) {
  const int64_t row = blockIdx.x;
  const int col = kWidth * static_cast<int>(blockIdx.y * kThreads + threadIdx.x);
  if (col >= call.hidden) return;
  const int n = call.streams_count;
  float* streams = call.streams.row(row) + col;
  Columns<kWidth> given{};
  if constexpr (kOp != StreamsOp::kMean) given = load_columns<kWidth>(call.given.row(row) + col);
  Columns<kWidth> in[kMostStreams];
#pragma unroll
  for (int i = 0; i < kMostStreams; ++i) {
    if (kOp != StreamsOp::kSpread && i < n) {
      in[i] = load_columns<kWidth>(streams + int64_t{i} * call.hidden);
    }
  }
  if constexpr (kOp == StreamsOp::kMean) {
    Columns<kWidth> sum{};
#pragma unroll
    for (int i = 0; i < kMostStreams; ++i) {
      if (i >= n) break;
#pragma unroll
      for (int w = 0; w < kWidth; ++w) sum.value[w] += in[i].value[w];
    }
#pragma unroll
    for (int w = 0; w < kWidth; ++w) sum.value[w] /= static_cast<float>(n);
    return store_columns<kWidth>(call.mean.row(row) + col, sum);
  }
  const float* post = call.coefficients.row(row) + n;
  for (int j = 0; j < n; ++j) {
    Columns<kWidth> out = given;
    if constexpr (kOp == StreamsOp::kMerge) {
      const float own = post[j];
#pragma unroll
      for (int w = 0; w < kWidth; ++w) out.value[w] *= own;
#pragma unroll
      for (int i = 0; i < kMostStreams; ++i) {
        if (i >= n) break;
        const float link = post[n + i * n + j];
#pragma unroll
        for (int w = 0; w < kWidth; ++w) out.value[w] = fmaf(link, in[i].value[w], out.value[w]);
      }
    }
    store_columns<kWidth>(streams + int64_t{j} * call.hidden, out);
  }
}

template <typename Row>
bool is_vector(const Row& rows) {
  return reinterpret_cast<uintptr_t>(rows.data) % 16 == 0 && rows.stride % 4 == 0;
}

template <StreamsOp kOp>
void run(Stream& any, StreamsCall call, const TensorView& streams) {
  if (streams.rows() == 0) return;
  CudaStream& stream = cuda_stream(any);
  call.streams = rows_of(streams);
  call.streams_count = static_cast<int>(streams.shape[1]);
  call.hidden = static_cast<int>(streams.shape[2]);
  MOTLEY_CHECK(call.streams_count <= kMostStreams, "more streams than there can be");
  const bool vector = call.hidden % 4 == 0 && is_vector(call.streams) && is_vector(call.given) &&
                      is_vector(call.mean);
  const auto rows = static_cast<unsigned>(streams.rows());
  if (vector) {
    const dim3 grid(rows, grid_of(call.hidden, 4 * kThreads));
    streams_kernel<kOp, 4><<<grid, kThreads, 0, stream.handle()>>>(call);
  } else {
    const dim3 grid(rows, grid_of(call.hidden, kThreads));
    streams_kernel<kOp, 1><<<grid, kThreads, 0, stream.handle()>>>(call);
  }
  stream.check_launch("hyper");
}

void merge(Stream& any, const ConstTensorView& y, const ConstTensorView& coefficients,
           const TensorView& streams) {
  MOTLEY_CHECK(streams.rows() == y.rows() && streams.shape[2] == y.cols() &&
                   coefficients.cols() == streams.shape[1] * (2 + streams.shape[1]),
               "streams, coefficients and the update must match");
  StreamsCall call{};
  call.given = rows_of(y);
  call.coefficients = rows_of(coefficients);
  run<StreamsOp::kMerge>(any, call, streams);
}

void spread(Stream& any, const ConstTensorView& x, const TensorView& streams) {
  MOTLEY_CHECK(streams.rows() == x.rows() && streams.shape[2] == x.cols(),
               "streams must match their source");
  StreamsCall call{};
  call.given = rows_of(x);
  run<StreamsOp::kSpread>(any, call, streams);
}

void mean(Stream& any, const ConstTensorView& streams, const TensorView& y) {
  MOTLEY_CHECK(streams.rows() == y.rows() && streams.shape[2] == y.cols(),
               "streams must match their mean");
  StreamsCall call{};
  call.mean = rows_of(y);
  // The kernel of this op only reads them.
  const TensorView read{const_cast<std::byte*>(streams.data), streams.dtype, streams.space,
                        streams.shape, streams.row_stride};
  run<StreamsOp::kMean>(any, call, read);
}

}  // namespace

HyperOps hyper_ops() {
  return {hyper_mix, merge, spread, mean};
}

}  // namespace motley::cuda
