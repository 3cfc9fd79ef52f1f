// Products in any weight format at any alignment, one warp per output. Slow, same contract.
#pragma once

#include "ops/cuda/cuda_stream.h"
#include "tensor/tensor_view.h"
#include "tensor/weight_matrix.h"

namespace motley::cuda {

// y[out_ids[i]] = W x[x_ids[i]] for i < count; null ids stand for i itself. Ids are device memory.
void run_scalar_linear(CudaStream& stream, const WeightMatrix& weights, const ConstTensorView& x,
                       const TensorView& y, int64_t count, const int32_t* x_ids,
                       const int32_t* out_ids);

}  // namespace motley::cuda
