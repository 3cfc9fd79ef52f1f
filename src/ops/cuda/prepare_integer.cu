#include "ops/cuda/device_math.cuh"
#include "ops/cuda/integer_rows.h"
#include "ops/cuda/launch.cuh"
#include "ops/cuda/tensor_core.cuh"

namespace motley::cuda {
namespace {

constexpr int kThreads = 128;
constexpr float kLargest = 32639.0f;  // high byte at most 127 after rounding

struct Prepare {
  ConstRows x;
  ConstRows gate;  // data may be null
  float limit;     // with `gate`
  uint4* units;
  float* blocks;
  int cols;
  int padded_cols;
  int group_size;
};

__device__ inline uint32_t pack_bytes(int a, int b, int c, int d) {
  return (static_cast<uint32_t>(a) & 0xFFu) | ((static_cast<uint32_t>(b) & 0xFFu) << 8) |
         ((static_cast<uint32_t>(c) & 0xFFu) << 16) | (static_cast<uint32_t>(d) << 24);
}

// One thread per unit of 8 elements; 16 neighbours make a block of 128.
__global__ void __launch_bounds__(kThreads) prepare_integer_kernel(Prepare call) {
  let_next_kernel_start();
  wait_for_previous_kernel();  // it may still read the scratch memory that this one writes
  const int unit = static_cast<int>(blockIdx.y) * kThreads + static_cast<int>(threadIdx.x);
  const int64_t row = blockIdx.x;
  float values[8];
  float largest = 0;
#pragma unroll
  for (int i = 0; i < 8; ++i) {
    const int col = unit * 8 + i;
    values[i] = 0;
    if (col >= call.cols) continue;
    values[i] = call.x.row(row)[col];
    if (call.gate.data != nullptr) {
      values[i] = gated_unit(call.gate.row(row)[col], values[i], call.limit);
    }
    largest = fmaxf(largest, fabsf(values[i]));
  }
  for (int offset = 8; offset > 0; offset /= 2) {
    largest = fmaxf(largest, __shfl_xor_sync(kFullWarp, largest, offset));
  }
  const float inverse = largest > 0 ? kLargest / largest : 0.0f;
  int high[8];
  int low[8];
  int sum = 0;
#pragma unroll
  for (int i = 0; i < 8; ++i) {
    const int fixed = __float2int_rn(values[i] * inverse);
    high[i] = (fixed + 128) >> 8;
    low[i] = fixed - 256 * high[i];
    sum += fixed;
  }
  const int units_per_group = call.group_size / 8;
  for (int offset = 1; offset < units_per_group; offset *= 2) {
    sum += __shfl_xor_sync(kFullWarp, sum, offset);
  }
  if (unit * 8 >= call.padded_cols) return;
  call.units[row * (call.padded_cols / 8) + unit] = make_uint4(
      pack_bytes(high[0], high[2], high[4], high[6]),
      pack_bytes(high[1], high[3], high[5], high[7]), pack_bytes(low[0], low[2], low[4], low[6]),
      pack_bytes(low[1], low[3], low[5], low[7]));
  float* block = call.blocks + (row * (call.padded_cols / kIntegerBlock) + unit / 16) *
                                   integer_block_floats(call.group_size);
  if (unit % 16 == 0) block[0] = largest / kLargest;
  if (unit % units_per_group == 0) {
    block[1 + unit % 16 / units_per_group] = static_cast<float>(sum);
  }
}

}  // namespace

IntegerRows prepare_integer_rows(CudaStream& stream, const ConstTensorView& x, const RowGate& gate,
                                 int group_size) {
  IntegerRows result;
  result.rows = x.rows();
  result.padded_cols = divide_up(x.cols(), kColumnPad) * kColumnPad;
  auto* units = stream.scratch().allocate<uint4>(result.rows * result.padded_cols / 8);
  auto* blocks = stream.scratch().allocate<float>(result.rows * result.padded_cols / kIntegerBlock *
                                                  integer_block_floats(group_size));
  result.units = units;
  result.blocks = blocks;
  if (result.rows == 0) return result;
  const Prepare call{rows_of(x),
                     rows_of(gate.rows),
                     gate.params.limit,
                     units,
                     blocks,
                     static_cast<int>(x.cols()),
                     static_cast<int>(result.padded_cols),
                     group_size};
  const dim3 grid(static_cast<unsigned>(result.rows), grid_of(call.padded_cols / 8, kThreads));
  launch_dependent(stream, prepare_integer_kernel, grid, kThreads, 0, "prepare_rows", call);
  return result;
}

}  // namespace motley::cuda
