#include "ops/cuda/device_math.cuh"
#include "ops/cuda/prepared_rows.h"
#include "ops/cuda/tensor_core.cuh"

namespace motley::cuda {
namespace {

constexpr int kThreads = 128;

struct Prepare {
  ConstRows x;
  ConstRows gate;  // data may be null
  __nv_bfloat16* pieces;
  float* sums;
  int64_t piece_stride;
  int cols;
  int padded_cols;
};

__device__ void load_unit(const Prepare& call, int64_t row, int col, float (&values)[8]) {
#pragma unroll
  for (int i = 0; i < 8; ++i) {
    values[i] = 0;
    if (col + i >= call.cols) continue;
    values[i] = call.x.row(row)[col + i];
    if (call.gate.data != nullptr) values[i] *= silu(call.gate.row(row)[col + i]);
  }
}

// One thread per unit of 8 elements; four neighbours make a block of 32.
template <int kPieces, bool kUnitMajor>
__global__ void __launch_bounds__(kThreads) prepare_kernel(Prepare call) {
  let_next_kernel_start();
  const int unit = static_cast<int>(blockIdx.y) * kThreads + static_cast<int>(threadIdx.x);
  const int64_t row = blockIdx.x;
  float values[8];
  load_unit(call, row, unit * 8, values);
  float sum = 0;
  const bool inside = unit * 8 < call.padded_cols;
#pragma unroll
  for (int piece = 0; piece < kPieces; ++piece) {
    uint32_t pairs[4];
#pragma unroll
    for (int j = 0; j < 4; ++j) {
      pairs[j] = pack_bf16(values[j], values[j + 4]);
      sum += low_bf16(pairs[j]) + high_bf16(pairs[j]);
      values[j] -= low_bf16(pairs[j]);
      values[j + 4] -= high_bf16(pairs[j]);
    }
    if (!inside) continue;
    auto* out = reinterpret_cast<uint32_t*>(call.pieces + piece * call.piece_stride +
                                            row * call.padded_cols + (unit / 4) * 32);
    const int t = unit % 4;
    if constexpr (kUnitMajor) {
      reinterpret_cast<uint4*>(out)[t] = make_uint4(pairs[0], pairs[1], pairs[2], pairs[3]);
    } else {
#pragma unroll
      for (int c = 0; c < 4; ++c) out[c * 4 + t] = pairs[c];
    }
  }
  sum += __shfl_xor_sync(kFullWarp, sum, 1);
  sum += __shfl_xor_sync(kFullWarp, sum, 2);
  if (inside && unit % 4 == 0) call.sums[row * (call.padded_cols / 32) + unit / 4] = sum;
}

template <int kPieces>
void launch(CudaStream& stream, const Prepare& call, int64_t rows, RowOrder order) {
  const dim3 grid(static_cast<unsigned>(rows), grid_of(call.padded_cols / 8, kThreads));
  if (order == RowOrder::kUnitMajor) {
    prepare_kernel<kPieces, true><<<grid, kThreads, 0, stream.handle()>>>(call);
  } else {
    prepare_kernel<kPieces, false><<<grid, kThreads, 0, stream.handle()>>>(call);
  }
}

}  // namespace

PreparedRows prepare_rows(CudaStream& stream, const ConstTensorView& x, const ConstTensorView& gate,
                          int pieces, RowOrder order) {
  PreparedRows result;
  result.rows = x.rows();
  result.padded_cols = divide_up(x.cols(), kColumnPad) * kColumnPad;
  result.piece_stride = result.rows * result.padded_cols;
  auto* storage = stream.scratch().allocate<__nv_bfloat16>(pieces * result.piece_stride);
  auto* sums = stream.scratch().allocate<float>(result.rows * result.padded_cols / 32);
  result.pieces = storage;
  result.sums = sums;
  const Prepare call{rows_of(x),
                     rows_of(gate),
                     storage,
                     sums,
                     result.piece_stride,
                     static_cast<int>(x.cols()),
                     static_cast<int>(result.padded_cols)};
  if (result.rows == 0) return result;
  if (pieces == 1) {
    launch<1>(stream, call, result.rows, order);
  } else {
    launch<3>(stream, call, result.rows, order);
  }
  stream.check_launch("prepare_rows");
  return result;
}

}  // namespace motley::cuda
