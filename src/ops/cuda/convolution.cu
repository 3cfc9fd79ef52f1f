#include <vector>

#include "ops/cuda/cuda_ops.h"
#include "ops/cuda/cuda_stream.h"
#include "ops/cuda/device_math.cuh"

namespace motley::cuda {
namespace {

constexpr int kThreads = 128;
constexpr int kMaxTaps = 8;  // kernel sizes up to 8; the families use 4
constexpr int kRowsPerBlock = 32;

struct Segment {
  int32_t first_row;
  int32_t rows;
  Rows window;
  bool tentative;  // the window is only read
};

struct Call {
  ConstRows u;
  const float* weight;
  Rows y;
  const Segment* segments;
  int channels;
  int taps;
};

// Input of channel c at row `row` of the segment; rows before it come from the window.
__device__ float input_at(const Call& call, const Segment& segment, int row, int c) {
  if (row >= 0) return call.u.row(segment.first_row + row)[c];
  return segment.window.row(row + call.taps - 1)[c];
}

// Grid: (channel blocks, blocks of kRowsPerBlock rows, segments). With kUpdate one block has all
// rows of a segment and also stores its window.
template <int kTaps, bool kUpdate>
__global__ void __launch_bounds__(kThreads) convolution_kernel(Call call) {
  const Segment segment = call.segments[blockIdx.z];
  const int c = static_cast<int>(blockIdx.x * kThreads + threadIdx.x);
  const int begin = static_cast<int>(blockIdx.y) * kRowsPerBlock;
  const int end = min(begin + kRowsPerBlock, segment.rows);
  if (c >= call.channels || begin >= end) return;
  float weight[kTaps];
  float recent[kTaps];
#pragma unroll
  for (int j = 0; j < kTaps; ++j) weight[j] = call.weight[c * kTaps + j];
#pragma unroll
  for (int j = 1; j < kTaps; ++j) recent[j] = input_at(call, segment, begin - kTaps + j, c);
  for (int row = begin; row < end; ++row) {
    float sum = 0;
#pragma unroll
    for (int j = 0; j + 1 < kTaps; ++j) recent[j] = recent[j + 1];
    recent[kTaps - 1] = call.u.row(segment.first_row + row)[c];
#pragma unroll
    for (int j = 0; j < kTaps; ++j) sum = fmaf(weight[j], recent[j], sum);
    call.y.row(segment.first_row + row)[c] = silu(sum);
  }
  if constexpr (kUpdate) {
    if (segment.tentative) return;
#pragma unroll
    for (int j = 0; j + 1 < kTaps; ++j) segment.window.row(j)[c] = recent[j + 1];
  }
}

// After the convolution: the window becomes the last taps - 1 inputs.
template <int kTaps>
__global__ void __launch_bounds__(kThreads) window_kernel(Call call) {
  const Segment segment = call.segments[blockIdx.z];
  const int c = static_cast<int>(blockIdx.x * kThreads + threadIdx.x);
  if (c >= call.channels || segment.tentative) return;
  float last[kTaps];
#pragma unroll
  for (int j = 0; j + 1 < kTaps; ++j) {
    last[j] = input_at(call, segment, segment.rows - kTaps + 1 + j, c);
  }
#pragma unroll
  for (int j = 0; j + 1 < kTaps; ++j) segment.window.row(j)[c] = last[j];
}

// The last of the window's rows and then `rows` of the ring become the window.
__global__ void __launch_bounds__(kThreads)
    commit_kernel(Rows window, ConstRows ring, int window_rows, int rows, int channels) {
  const int c = static_cast<int>(blockIdx.x * kThreads + threadIdx.x);
  if (c >= channels) return;
  float last[kMaxTaps];
#pragma unroll
  for (int j = 0; j < kMaxTaps; ++j) {
    if (j >= window_rows) break;
    const int from = rows + j;
    last[j] = from < window_rows ? window.row(from)[c] : ring.row(from - window_rows)[c];
  }
#pragma unroll
  for (int j = 0; j < kMaxTaps; ++j) {
    if (j < window_rows) window.row(j)[c] = last[j];
  }
}

template <int kTaps>
void launch(CudaStream& stream, const Call& call, int64_t max_rows, size_t segments) {
  const auto z = static_cast<unsigned>(segments);
  const unsigned x = grid_of(call.channels, kThreads);
  if (max_rows <= kRowsPerBlock) {
    convolution_kernel<kTaps, true><<<dim3(x, 1, z), kThreads, 0, stream.handle()>>>(call);
    return;
  }
  convolution_kernel<kTaps, false>
      <<<dim3(x, grid_of(max_rows, kRowsPerBlock), z), kThreads, 0, stream.handle()>>>(call);
  window_kernel<kTaps><<<dim3(x, 1, z), kThreads, 0, stream.handle()>>>(call);
}

void launch_taps(CudaStream& stream, const Call& call, int64_t max_rows, size_t segments) {
  switch (call.taps) {
    case 1:
      return launch<1>(stream, call, max_rows, segments);
    case 2:
      return launch<2>(stream, call, max_rows, segments);
    case 3:
      return launch<3>(stream, call, max_rows, segments);
    case 4:
      return launch<4>(stream, call, max_rows, segments);
    case 5:
      return launch<5>(stream, call, max_rows, segments);
    case 6:
      return launch<6>(stream, call, max_rows, segments);
    case 7:
      return launch<7>(stream, call, max_rows, segments);
    case kMaxTaps:
      return launch<kMaxTaps>(stream, call, max_rows, segments);
    default:
      stream.note(cudaErrorNotSupported, "causal_convolution with more than 8 taps");
  }
}

// The inputs of tentative rows, for commit.
void keep_inputs(CudaStream& stream, const ConstTensorView& u, const ConvolutionSegment& segment) {
  constexpr size_t kBytes = sizeof(float);
  const ConstTensorView from = u.slice_rows(segment.rows.first_row, segment.rows.rows);
  stream.note(
      cudaMemcpy2DAsync(
          segment.ring.data, static_cast<size_t>(segment.ring.row_stride) * kBytes, from.data,
          static_cast<size_t>(u.row_stride) * kBytes, static_cast<size_t>(u.cols()) * kBytes,
          static_cast<size_t>(segment.rows.rows), cudaMemcpyDeviceToDevice, stream.handle()),
      "causal_convolution");
}

void causal_convolution(Stream& any, const ConstTensorView& u, const ConstTensorView& weight,
                        std::span<const ConvolutionSegment> segments, const TensorView& y) {
  CudaStream& stream = cuda_stream(any);
  Arena::Scope scope(stream.scratch());
  std::vector<Segment> items;
  int64_t max_rows = 0;
  for (const ConvolutionSegment& segment : segments) {
    if (segment.rows.rows == 0) continue;
    items.push_back({segment.rows.first_row, segment.rows.rows, rows_of(segment.window),
                     !segment.ring.is_empty()});
    if (!segment.ring.is_empty()) keep_inputs(stream, u, segment);
    max_rows = segment.rows.rows > max_rows ? segment.rows.rows : max_rows;
  }
  if (items.empty()) return;
  Call call{};
  call.u = rows_of(u);
  call.weight = floats_of(weight);
  call.y = rows_of(y);
  call.segments = stream.upload<Segment>(items);
  call.channels = static_cast<int>(u.cols());
  call.taps = static_cast<int>(weight.cols());
  launch_taps(stream, call, max_rows, items.size());
  stream.check_launch("causal_convolution");
}

void commit(Stream& any, const ConvolutionSegment& segment) {
  if (segment.rows.rows == 0 || segment.window.rows() == 0) return;
  CudaStream& stream = cuda_stream(any);
  const auto window_rows = static_cast<int>(segment.window.rows());
  if (window_rows > kMaxTaps) {
    stream.note(cudaErrorNotSupported, "convolution.commit with more than 9 taps");
    return;
  }
  const auto channels = static_cast<int>(segment.window.cols());
  commit_kernel<<<grid_of(channels, kThreads), kThreads, 0, stream.handle()>>>(
      rows_of(segment.window), rows_of(static_cast<ConstTensorView>(segment.ring)), window_rows,
      segment.rows.rows, channels);
  stream.check_launch("convolution.commit");
}

}  // namespace

ConvolutionOps convolution_ops() {
  return {causal_convolution, commit};
}

}  // namespace motley::cuda
