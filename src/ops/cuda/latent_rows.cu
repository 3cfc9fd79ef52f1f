// Rotation of heads and the write of latent rows.
#include <cmath>
#include <vector>

#include "ops/cuda/device_math.cuh"
#include "ops/cuda/latent_kernels.h"

namespace motley::cuda {
namespace {

constexpr int kThreads = 128;
constexpr int kMaxPairs = 256;  // rotary_dim / 2

struct RotateCall {
  ConstRows x;
  Rows y;
  const double* frequencies;  // [pairs]
  const int64_t* positions;   // [rows], -1: not in any segment
  int64_t x_head;             // elements from one head to the next
  int64_t y_head;
  int heads;
  int pairs;
  bool interleaved;
};

// A thread block per row. The angle is formed in float64: a position of 2^18 leaves float32 no
// digits for it.
__global__ void __launch_bounds__(kThreads) rotate_kernel(const __grid_constant__ RotateCall call) {
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
  for (int item = static_cast<int>(threadIdx.x); item < call.heads * call.pairs; item += kThreads) {
    const int i = item % call.pairs;
    const int64_t head = item / call.pairs;
    const float* x = call.x.row(row) + head * call.x_head;
    float* y = call.y.row(row) + head * call.y_head;
    const int a = call.interleaved ? 2 * i : i;
    const int b = call.interleaved ? 2 * i + 1 : i + call.pairs;
    const float first = x[a];
    const float second = x[b];
    y[a] = first * cosines[i] - second * sines[i];
    y[b] = second * cosines[i] + first * sines[i];
  }
}

struct WriteCall {
  ConstRows x;
  std::byte* const* rows;  // [rows], null: this shard does not hold it
  int width;
};

template <typename T>
__global__ void __launch_bounds__(kThreads) write_kernel(const __grid_constant__ WriteCall call) {
  auto* target = reinterpret_cast<T*>(call.rows[blockIdx.x]);
  if (target == nullptr) return;
  const float* x = call.x.row(blockIdx.x);
  for (int i = static_cast<int>(threadIdx.x); i < call.width; i += kThreads) {
    if constexpr (sizeof(T) == 2) {
      target[i] = __float2bfloat16_rn(x[i]);
    } else {
      target[i] = x[i];
    }
  }
}

}  // namespace

void rotate_heads(Stream& any, const RotateArgs& args) {
  CudaStream& stream = cuda_stream(any);
  Arena::Scope scope(stream.scratch());
  const int64_t rows = args.x.rows();
  const int pairs = args.rotary.rotary_dim / 2;
  if (rows == 0 || pairs == 0) return;
  if (pairs > kMaxPairs) {
    stream.note(cudaErrorNotSupported, "latent.rotate: over 512 rotary dimensions");
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
  RotateCall call{};
  call.x = rows_of(args.x);
  call.y = rows_of(args.y);
  call.frequencies = stream.upload<double>(frequencies);
  call.positions = stream.upload<int64_t>(positions);
  call.x_head = args.x.shape[2];
  call.y_head = args.y.shape[2];
  call.heads = static_cast<int>(args.x.shape[1]);
  call.pairs = pairs;
  call.interleaved = args.interleaved;
  rotate_kernel<<<static_cast<unsigned>(rows), kThreads, 0, stream.handle()>>>(call);
  stream.check_launch("latent.rotate");
}

void write_rows(Stream& any, const ConstTensorView& x, std::span<const RowCacheSegment> segments) {
  if (x.rows() == 0 || segments.empty()) return;
  CudaStream& stream = cuda_stream(any);
  Arena::Scope scope(stream.scratch());
  std::vector<std::byte*> rows(static_cast<size_t>(x.rows()), nullptr);
  for (const RowCacheSegment& segment : segments) {
    for (int32_t i = 0; i < segment.rows.rows; ++i) {
      const int64_t position = segment.rows.first_position.value + i;
      if (!segment.cache.shard.holds(position)) continue;
      rows[static_cast<size_t>(segment.rows.first_row + i)] =
          segment.cache.row(segment.cache.shard.tokens_below(position));
    }
  }
  const WriteCall call{rows_of(x), stream.upload<std::byte*>(rows), static_cast<int>(x.cols())};
  const auto blocks = static_cast<unsigned>(rows.size());
  if (segments[0].cache.layout.dtype == DType::kBf16) {
    write_kernel<__nv_bfloat16><<<blocks, kThreads, 0, stream.handle()>>>(call);
  } else {
    write_kernel<float><<<blocks, kThreads, 0, stream.handle()>>>(call);
  }
  stream.check_launch("latent.row_write");
}

}  // namespace motley::cuda
