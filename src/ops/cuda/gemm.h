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

// y = x W^T. x: one piece in kChunkMajor order.
void run_gemm(CudaStream& stream, const WeightMatrix& weights, const PreparedRows& x,
              const TensorView& y);

// One expert's rows: x_ids[0..count) into out_ids[0..count) of y; device memory. Null ids stand
// for first_x + i and first_out + i.
struct GemmGroup {
  WeightMatrix weights;
  const int32_t* x_ids = nullptr;
  const int32_t* out_ids = nullptr;
  int32_t first_x = 0;
  int32_t first_out = 0;
  int32_t count = 0;
};

// All groups have one format and one shape.
void run_gemm_groups(CudaStream& stream, std::span<const GemmGroup> groups, const PreparedRows& x,
                     const TensorView& y);

}  // namespace motley::cuda
