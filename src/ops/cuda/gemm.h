// Products of weight matrices with many rows (prefill, fast profile): tensor-core tiles that
// decode the weights on their way from shared memory into registers.
//
// Activations are bfloat16, weights are rounded to bfloat16 once after scale and bias, sums are
// float32 in ascending K. A row's bits do not depend on the other rows: tiles pad.
#pragma once

#include <cstdint>
#include <span>

#include "ops/cuda/cuda_stream.h"
#include "ops/cuda/prepared_rows.h"
#include "tensor/weight_matrix.h"

namespace motley::cuda {

// True when the tile kernel takes W: BF16 or MLX affine with 16-bit scales, aligned planes.
bool gemm_takes(const WeightMatrix& weights);

// The order of x that this device's kernel for W takes; one piece.
RowOrder gemm_order(const CudaStream& stream, const WeightMatrix& weights);

// y = x W^T.
void run_gemm(CudaStream& stream, const WeightMatrix& weights, const PreparedRows& x,
              const TensorView& y);

// Whether run_gemm_gated takes W on this device.
bool gemm_takes_gated(const CudaStream& stream, const WeightMatrix& weights);

// One expert's rows: rows first_x + i of x, i < count, into rows out_ids[i] (or first_out + i) of
// y. out_ids is device memory.
struct GemmGroup {
  WeightMatrix weights;
  WeightMatrix up;  // run_gemm_gated only
  TensorView y;     // run_gemm_groups only
  const int32_t* out_ids = nullptr;
  int32_t first_x = 0;  // a multiple of kGemmGroupAlign
  int32_t first_out = 0;
  int32_t count = 0;
};
inline constexpr int32_t kGemmGroupAlign = 8;

// All groups have one format and one shape.
void run_gemm_groups(CudaStream& stream, std::span<const GemmGroup> groups, const PreparedRows& x);

// silu(x W^T) * (x up^T), within a limit, of all groups as rows for another product: row first_out
// + i, a multiple of kGemmGroupAlign and i. `rows` of them, those of no group are undefined.
// Scratch of `stream`.
PreparedRows run_gemm_gated(CudaStream& stream, std::span<const GemmGroup> groups,
                            const PreparedRows& x, int64_t rows, SwigluParams swiglu);

}  // namespace motley::cuda
