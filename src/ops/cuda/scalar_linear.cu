#include "ops/cuda/scalar_linear.h"

#include "ops/cuda/weight_scalar.cuh"

namespace motley::cuda {
namespace {

constexpr int kWarps = 8;

__global__ void __launch_bounds__(32 * kWarps)
    scalar_linear_kernel(ScalarWeights weights, ConstRows x, Rows y, const int32_t* x_ids,
                         const int32_t* out_ids, int64_t count) {
  const int64_t output = static_cast<int64_t>(blockIdx.x) * kWarps + threadIdx.x / 32;
  if (output >= weights.rows) return;
  const int lane = static_cast<int>(threadIdx.x) % 32;
  for (int64_t i = blockIdx.y; i < count; i += gridDim.y) {
    const float* in = x.row(x_ids == nullptr ? i : x_ids[i]);
    float sum = 0;
    for (int col = lane; col < weights.cols; col += 32) {
      sum = fmaf(weight_at(weights, output, col), in[col], sum);
    }
    sum = warp_sum(sum);
    if (lane == 0) y.row(out_ids == nullptr ? i : out_ids[i])[output] = sum;
  }
}

}  // namespace

void run_scalar_linear(CudaStream& stream, const WeightMatrix& weights, const ConstTensorView& x,
                       const TensorView& y, int64_t count, const int32_t* x_ids,
                       const int32_t* out_ids) {
  if (count == 0 || weights.rows == 0) return;
  if (!is_scalar_format(weights)) {
    return stream.note(cudaErrorNotSupported, "products with weights of this format");
  }
  const dim3 grid(grid_of(weights.rows, kWarps), static_cast<unsigned>(count < 256 ? count : 256));
  scalar_linear_kernel<<<grid, 32 * kWarps, 0, stream.handle()>>>(
      scalar_weights(weights), rows_of(x), rows_of(y), x_ids, out_ids, count);
  stream.check_launch("linear (scalar)");
}

}  // namespace motley::cuda
