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
  float limit;         // with `gate`
  const int32_t* ids;  // of gather_kernel
  __nv_bfloat16* pieces;
  float* sums;
  int64_t piece_stride;
  int64_t rows;
  int cols;
  int padded_cols;
};

// Eight elements from `col` on; zeros past the end.
__device__ void load_eight(const float* row, int col, int cols, float (&values)[8]) {
  if (col + 8 <= cols && reinterpret_cast<uintptr_t>(row + col) % 16 == 0) {
    const float4 low = *reinterpret_cast<const float4*>(row + col);
    const float4 high = *reinterpret_cast<const float4*>(row + col + 4);
    values[0] = low.x;
    values[1] = low.y;
    values[2] = low.z;
    values[3] = low.w;
    values[4] = high.x;
    values[5] = high.y;
    values[6] = high.z;
    values[7] = high.w;
    return;
  }
#pragma unroll
  for (int i = 0; i < 8; ++i) values[i] = col + i < cols ? row[col + i] : 0.0f;
}

__device__ void load_unit(const Prepare& call, int64_t row, int col, float (&values)[8]) {
  load_eight(call.x.row(row), col, call.cols, values);
  if (call.gate.data == nullptr) return;
  float gate[8];
  load_eight(call.gate.row(row), col, call.cols, gate);
#pragma unroll
  for (int i = 0; i < 8; ++i) values[i] = gated_unit(gate[i], values[i], call.limit);
}

__device__ inline uint32_t pick(const uint32_t (&values)[4], int index) {
  const uint32_t low = index % 2 == 0 ? values[0] : values[1];
  const uint32_t high = index % 2 == 0 ? values[2] : values[3];
  return index < 2 ? low : high;
}

// Among the four lanes of a block: lane t gives its pair c to lane c and gets pair t of all.
__device__ inline uint4 gather_chunk(const uint32_t (&pairs)[4]) {
  const int t = static_cast<int>(threadIdx.x) % 4;
  uint32_t got[4];
#pragma unroll
  for (int step = 0; step < 4; ++step) {
    got[step] = __shfl_xor_sync(kFullWarp, pick(pairs, t ^ step), step);
  }
  return make_uint4(pick(got, t), pick(got, t ^ 1), pick(got, t ^ 2), pick(got, t ^ 3));
}

// Where the 16 bytes of lane `unit` % 4 of a block of 32 elements go, as an index of 16 bytes.
template <RowOrder kOrder>
__device__ inline int64_t chunk_place(const Prepare& call, int64_t row, int unit) {
  if constexpr (kOrder == RowOrder::kTileMajor) {
    return (unit / 8 * call.rows + row) * 8 + ((unit % 8) ^ static_cast<int>(row % 8));
  }
  return row * (call.padded_cols / 8) + unit;
}

// One thread per unit of 8 elements; four neighbours make a block of 32.
template <int kPieces, RowOrder kOrder>
__global__ void __launch_bounds__(kThreads) prepare_kernel(Prepare call) {
  let_next_kernel_start();
  wait_for_previous_kernel();  // it may still read the scratch memory that this one writes
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
    const uint4 chunk = kOrder == RowOrder::kUnitMajor
                            ? make_uint4(pairs[0], pairs[1], pairs[2], pairs[3])
                            : gather_chunk(pairs);
    auto* out = reinterpret_cast<uint4*>(call.pieces + piece * call.piece_stride);
    if (inside) out[chunk_place<kOrder>(call, row, unit)] = chunk;
  }
  if (call.sums == nullptr) return;
  sum += __shfl_xor_sync(kFullWarp, sum, 1);
  sum += __shfl_xor_sync(kFullWarp, sum, 2);
  if (inside && unit % 4 == 0) call.sums[row * (call.padded_cols / 32) + unit / 4] = sum;
}

// Row ids[i] of rows in kChunkMajor order to row i, a block each.
template <RowOrder kOrder>
__global__ void __launch_bounds__(kThreads) gather_kernel(Prepare call, const uint4* from) {
  const int64_t row = blockIdx.x;
  const int units = call.padded_cols / 8;
  const uint4* source = from + int64_t{call.ids[row]} * units;
  auto* out = reinterpret_cast<uint4*>(call.pieces);
#pragma unroll 4
  for (int unit = static_cast<int>(threadIdx.x); unit < units; unit += kThreads) {
    out[chunk_place<kOrder>(call, row, unit)] = source[unit];
  }
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

PreparedRows prepare_rows(CudaStream& stream, const ConstTensorView& x, const RowGate& gate,
                          int pieces, RowOrder order) {
  Prepare call{};
  call.x = rows_of(x);
  call.gate = rows_of(gate.rows);
  call.limit = gate.params.limit;
  return prepare(stream, call, x.rows(), x.cols(), pieces, order);
}

PreparedRows gather_rows(CudaStream& stream, const ConstTensorView& x, const int32_t* ids,
                         int64_t rows, RowOrder order) {
  // Rounded once, then copied: a row goes to several places.
  const PreparedRows once = prepare_rows(stream, x, {}, 1, RowOrder::kChunkMajor);
  PreparedRows result;
  result.rows = rows;
  result.padded_cols = once.padded_cols;
  result.piece_stride = rows * once.padded_cols;
  const int64_t read_ahead = order == RowOrder::kTileMajor ? kTileReadAhead * 64 : 0;
  auto* pieces = stream.scratch().allocate<__nv_bfloat16>(result.piece_stride + read_ahead);
  result.pieces = pieces;
  if (rows == 0) return result;
  Prepare call{};
  call.ids = ids;
  call.pieces = pieces;
  call.rows = rows;
  call.padded_cols = static_cast<int>(result.padded_cols);
  const auto* from = reinterpret_cast<const uint4*>(once.pieces);
  const auto blocks = static_cast<unsigned>(rows);
  if (order == RowOrder::kTileMajor) {
    gather_kernel<RowOrder::kTileMajor><<<blocks, kThreads, 0, stream.handle()>>>(call, from);
  } else {
    gather_kernel<RowOrder::kChunkMajor><<<blocks, kThreads, 0, stream.handle()>>>(call, from);
  }
  stream.check_launch("gather_rows");
  return result;
}

}  // namespace motley::cuda
