#include "ops/cuda/device_math.cuh"
#include "ops/cuda/launch.cuh"
#include "ops/cuda/prepared_rows.h"
#include "ops/cuda/tensor_core.cuh"

namespace motley::cuda {
namespace {

constexpr int kThreads = 128;

struct Prepare {
  ConstRows x;
  ConstRows gate;      // data may be null
  const int32_t* ids;  // null: every row in its place
  __nv_bfloat16* pieces;
  float* sums;
  int64_t piece_stride;
  int64_t rows;
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

// Where pair c of unit t of a block of 32 elements goes, as an index of pairs.
template <RowOrder kOrder>
__device__ inline int64_t pair_place(const Prepare& call, int64_t row, int unit, int c) {
  const int t = unit % 4;
  if constexpr (kOrder == RowOrder::kTileMajor) {
    const int chunk = (unit / 4 % 2 * 4 + c) ^ static_cast<int>(row % 8);
    return (unit / 8 * call.rows + row) * 32 + chunk * 4 + t;
  }
  const int64_t at = row * (call.padded_cols / 2) + unit / 4 * 16;
  return at + (kOrder == RowOrder::kUnitMajor ? t * 4 + c : c * 4 + t);
}

// One thread per unit of 8 elements; four neighbours make a block of 32.
template <int kPieces, RowOrder kOrder>
__global__ void __launch_bounds__(kThreads) prepare_kernel(Prepare call) {
  let_next_kernel_start();
  wait_for_previous_kernel();  // it may still read the scratch memory that this one writes
  const int unit = static_cast<int>(blockIdx.y) * kThreads + static_cast<int>(threadIdx.x);
  const int64_t row = blockIdx.x;
  float values[8];
  load_unit(call, call.ids == nullptr ? row : call.ids[row], unit * 8, values);
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
    auto* out = reinterpret_cast<uint32_t*>(call.pieces + piece * call.piece_stride);
    if constexpr (kOrder == RowOrder::kUnitMajor) {
      *reinterpret_cast<uint4*>(out + pair_place<kOrder>(call, row, unit, 0)) =
          make_uint4(pairs[0], pairs[1], pairs[2], pairs[3]);
    } else {
#pragma unroll
      for (int c = 0; c < 4; ++c) out[pair_place<kOrder>(call, row, unit, c)] = pairs[c];
    }
  }
  if (call.sums == nullptr) return;
  sum += __shfl_xor_sync(kFullWarp, sum, 1);
  sum += __shfl_xor_sync(kFullWarp, sum, 2);
  if (inside && unit % 4 == 0) call.sums[row * (call.padded_cols / 32) + unit / 4] = sum;
}

template <int kPieces>
void launch(CudaStream& stream, const Prepare& call, RowOrder order) {
  const dim3 grid(static_cast<unsigned>(call.rows), grid_of(call.padded_cols / 8, kThreads));
  auto* kernel = prepare_kernel<kPieces, RowOrder::kUnitMajor>;
  if constexpr (kPieces == 1) {
    if (order == RowOrder::kChunkMajor) kernel = prepare_kernel<1, RowOrder::kChunkMajor>;
    if (order == RowOrder::kTileMajor) kernel = prepare_kernel<1, RowOrder::kTileMajor>;
  }
  launch_dependent(stream, kernel, grid, kThreads, 0, "prepare_rows", call);
}

PreparedRows prepare(CudaStream& stream, Prepare call, int64_t rows, int64_t cols, int pieces,
                     RowOrder order) {
  PreparedRows result;
  result.rows = rows;
  result.padded_cols = divide_up(cols, kColumnPad) * kColumnPad;
  result.piece_stride = result.rows * result.padded_cols;
  const int64_t read_ahead = order == RowOrder::kTileMajor ? kTileReadAhead * 64 : 0;
  call.pieces = stream.scratch().allocate<__nv_bfloat16>(pieces * result.piece_stride + read_ahead);
  if (order == RowOrder::kUnitMajor) {
    call.sums = stream.scratch().allocate<float>(result.rows * result.padded_cols / 32);
  }
  result.pieces = call.pieces;
  result.sums = call.sums;
  call.piece_stride = result.piece_stride;
  call.rows = rows;
  call.cols = static_cast<int>(cols);
  call.padded_cols = static_cast<int>(result.padded_cols);
  if (rows == 0) return result;
  if (pieces == 1) {
    launch<1>(stream, call, order);
  } else {
    launch<3>(stream, call, order);
  }
  return result;
}

}  // namespace

PreparedRows prepare_rows(CudaStream& stream, const ConstTensorView& x, const ConstTensorView& gate,
                          int pieces, RowOrder order) {
  Prepare call{};
  call.x = rows_of(x);
  call.gate = rows_of(gate);
  return prepare(stream, call, x.rows(), x.cols(), pieces, order);
}

PreparedRows gather_rows(CudaStream& stream, const ConstTensorView& x, const int32_t* ids,
                         int64_t rows, RowOrder order) {
  Prepare call{};
  call.x = rows_of(x);
  call.ids = ids;
  return prepare(stream, call, rows, x.cols(), 1, order);
}

}  // namespace motley::cuda
