// Products of every head's vectors with a matrix of the head; contract in ops/latent_attention.h.
//
// Weights of any format are decoded on their way into shared memory. Both operands are two
// bfloat16 pieces, whose three products keep float32 quality. A row's sums run over K in one order,
// whatever the number of rows (R5).
#include <vector>

#include "ops/cuda/latent_kernels.h"
#include "ops/cuda/tensor_core.cuh"
#include "ops/cuda/weight_scalar.cuh"

namespace motley::cuda {
namespace {

constexpr int kOutputs = 64;  // of a tile
constexpr int kDepth = 64;    // of K at a time
constexpr int kPitch = kDepth + 8;
constexpr int kThreads = 128;
constexpr int64_t kManyRows = 32;

struct HeadCall {
  ConstRows x;
  Rows y;
  const ScalarWeights* weights;  // by head
  int64_t x_head;                // elements from one head to the next
  int64_t y_head;
  int64_t rows;
};

template <int kRowTiles>
struct alignas(16) Shared {
  __nv_bfloat16 x[2][16 * kRowTiles][kPitch];
  __nv_bfloat16 w[2][kOutputs][kPitch];
};

__device__ void put(__nv_bfloat16* high, __nv_bfloat16* low, float value) {
  *high = __float2bfloat16_rn(value);
  *low = __float2bfloat16_rn(value - __bfloat162float(*high));
}

// The tile's weights of K [k0, k0 + kDepth) as [output][k], eight columns of the matrix at a time.
// Neighbouring threads read neighbours of a row of the matrix.
template <bool kTransposed, typename SharedT>
__device__ void load_weights(const ScalarWeights& w, int output0, int k0, SharedT& shared) {
  constexpr int kLines = kTransposed ? kDepth : kOutputs;  // rows of the matrix
  constexpr int kUnits = kOutputs * kDepth / 8 / kLines;
#pragma unroll
  for (int i = static_cast<int>(threadIdx.x); i < kOutputs * kDepth / 8; i += kThreads) {
    const int line = i / kUnits;
    const int unit = i % kUnits * 8;
    const int row = (kTransposed ? k0 : output0) + line;
    float values[8] = {};
    if (row < w.rows) eight_weights(w, row, (kTransposed ? output0 : k0) + unit, values);
    if constexpr (kTransposed) {
#pragma unroll
      for (int c = 0; c < 8; ++c) {
        put(&shared.w[0][unit + c][line], &shared.w[1][unit + c][line], values[c]);
      }
    } else {
      uint32_t high[4];
      uint32_t low[4];
#pragma unroll
      for (int c = 0; c < 4; ++c) {
        split_bf16(values[2 * c], values[2 * c + 1], &high[c], &low[c]);
      }
      *reinterpret_cast<uint4*>(&shared.w[0][line][unit]) =
          make_uint4(high[0], high[1], high[2], high[3]);
      *reinterpret_cast<uint4*>(&shared.w[1][line][unit]) =
          make_uint4(low[0], low[1], low[2], low[3]);
    }
  }
}

template <int kRowTiles>
__device__ void load_x(const HeadCall& call, int head, int64_t row0, int k0, int depth,
                       Shared<kRowTiles>& shared) {
  for (int i = static_cast<int>(threadIdx.x); i < 16 * kRowTiles * kDepth; i += kThreads) {
    const int row = i / kDepth;
    const int k = i % kDepth;
    float value = 0;
    if (row0 + row < call.rows && k0 + k < depth) {
      value = call.x.row(row0 + row)[head * call.x_head + k0 + k];
    }
    put(&shared.x[0][row][k], &shared.x[1][row][k], value);
  }
}

// Grid: (tiles of outputs, heads, tiles of rows); a warp has 16 outputs.
template <int kRowTiles, bool kTransposed>
__global__ void __launch_bounds__(kThreads)
    head_linear_kernel(const __grid_constant__ HeadCall call) {
  __shared__ Shared<kRowTiles> shared;
  const int head = static_cast<int>(blockIdx.y);
  const ScalarWeights w = call.weights[head];
  const int outputs = kTransposed ? w.cols : w.rows;
  const int depth = kTransposed ? w.rows : w.cols;
  const int output0 = static_cast<int>(blockIdx.x) * kOutputs;
  if (output0 >= outputs) return;
  const int64_t row0 = int64_t{blockIdx.z} * 16 * kRowTiles;
  const int lane = static_cast<int>(threadIdx.x) % 32;
  const int mine = static_cast<int>(threadIdx.x) / 32 * 16;
  float c[kRowTiles][2][4] = {};
  for (int k0 = 0; k0 < depth; k0 += kDepth) {
    load_weights<kTransposed>(w, output0, k0, shared);
    load_x(call, head, row0, k0, depth, shared);
    __syncthreads();
#pragma unroll
    for (int k = 0; k < kDepth; k += 16) {
      uint32_t b[2][4];
#pragma unroll
      for (int piece = 0; piece < 2; ++piece) {
        load_matrix_x4(
            b[piece], shared_address(
                          &shared.w[piece][mine + lane / 16 * 8 + lane % 8][k + lane / 8 % 2 * 8]));
      }
#pragma unroll
      for (int m = 0; m < kRowTiles; ++m) {
        uint32_t a[2][4];
#pragma unroll
        for (int piece = 0; piece < 2; ++piece) {
          load_matrix_x4(a[piece],
                         shared_address(&shared.x[piece][16 * m + lane % 16][k + lane / 16 * 8]));
        }
#pragma unroll
        for (int n = 0; n < 2; ++n) {
          mma_bf16(c[m][n], a[1][0], a[1][1], a[1][2], a[1][3], b[0][2 * n], b[0][2 * n + 1]);
          mma_bf16(c[m][n], a[0][0], a[0][1], a[0][2], a[0][3], b[1][2 * n], b[1][2 * n + 1]);
          mma_bf16(c[m][n], a[0][0], a[0][1], a[0][2], a[0][3], b[0][2 * n], b[0][2 * n + 1]);
        }
      }
    }
    __syncthreads();
  }
#pragma unroll
  for (int m = 0; m < kRowTiles; ++m) {
#pragma unroll
    for (int n = 0; n < 2; ++n) {
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        const int64_t row = row0 + 16 * m + lane / 4 + i / 2 * 8;
        const int output = output0 + mine + 8 * n + lane % 4 * 2 + i % 2;
        if (row < call.rows && output < outputs) {
          call.y.row(row)[head * call.y_head + output] = c[m][n][i];
        }
      }
    }
  }
}

template <bool kTransposed>
void launch(CudaStream& stream, const HeadCall& call, unsigned tiles, unsigned heads) {
  if (call.rows < kManyRows) {
    const dim3 grid(tiles, heads, grid_of(call.rows, 16));
    head_linear_kernel<1, kTransposed><<<grid, kThreads, 0, stream.handle()>>>(call);
  } else {
    const dim3 grid(tiles, heads, grid_of(call.rows, 64));
    head_linear_kernel<4, kTransposed><<<grid, kThreads, 0, stream.handle()>>>(call);
  }
  stream.check_launch("latent.head_linear");
}

}  // namespace

void head_linear(Stream& any, const ConstTensorView& x, std::span<const WeightMatrix> weights,
                 bool transposed, const TensorView& y) {
  if (x.rows() == 0 || weights.empty()) return;
  CudaStream& stream = cuda_stream(any);
  Arena::Scope scope(stream.scratch());
  std::vector<ScalarWeights> items;
  int64_t outputs = 0;
  for (const WeightMatrix& each : weights) {
    if (!is_scalar_format(each)) {
      return stream.note(cudaErrorNotSupported, "latent.head_linear: weights of this format");
    }
    items.push_back(scalar_weights(each));
    outputs = std::max(outputs, transposed ? each.cols : each.rows);
  }
  HeadCall call{};
  call.x = rows_of(x);
  call.y = rows_of(y);
  call.weights = stream.upload<ScalarWeights>(items);
  call.x_head = x.shape[2];
  call.y_head = y.shape[2];
  call.rows = x.rows();
  const unsigned tiles = grid_of(outputs, kOutputs);
  const auto heads = static_cast<unsigned>(weights.size());
  if (transposed) {
    launch<true>(stream, call, tiles, heads);
  } else {
    launch<false>(stream, call, tiles, heads);
  }
}

}  // namespace motley::cuda
