// The norm of an indexer's keys, and its table.
#include "ops/cuda/cuda_ops.h"
#include "ops/cuda/cuda_stream.h"
#include "ops/cuda/device_math.cuh"
#include "ops/cuda/index_kernels.h"

namespace motley::cuda {
namespace {

constexpr int kThreads = 128;

struct LayerNormCall {
  ConstRows x;
  const float* weight;
  const float* bias;
  Rows y;
  float epsilon;
  int dim;
};

// A thread block per row; the variance is that of the differences, which costs a pass over the row
// and no digits.
__global__ void __launch_bounds__(kThreads)
    layer_norm_kernel(const __grid_constant__ LayerNormCall call) {
  __shared__ float partial[kThreads / 32];
  const float* in = call.x.row(blockIdx.x);
  float* out = call.y.row(blockIdx.x);
  const int thread = static_cast<int>(threadIdx.x);
  float sum = 0;
  for (int i = thread; i < call.dim; i += kThreads) sum += in[i];
  const float mean = block_sum<kThreads / 32>(sum, partial) / static_cast<float>(call.dim);
  sum = 0;
  for (int i = thread; i < call.dim; i += kThreads) sum += (in[i] - mean) * (in[i] - mean);
  const float variance = block_sum<kThreads / 32>(sum, partial) / static_cast<float>(call.dim);
  const float scale = 1.0f / sqrtf(variance + call.epsilon);
  for (int i = thread; i < call.dim; i += kThreads) {
    out[i] = fmaf((in[i] - mean) * scale, call.weight[i], call.bias[i]);
  }
}

void layer_norm(Stream& any, const ConstTensorView& x, const ConstTensorView& weight,
                const ConstTensorView& bias, float epsilon, const TensorView& y) {
  if (x.rows() == 0) return;
  CudaStream& stream = cuda_stream(any);
  const LayerNormCall call{rows_of(x), floats_of(weight), floats_of(bias),
                           rows_of(y), epsilon,           static_cast<int>(x.cols())};
  layer_norm_kernel<<<static_cast<unsigned>(x.rows()), kThreads, 0, stream.handle()>>>(call);
  stream.check_launch("index.layer_norm");
}

}  // namespace

IndexOps index_ops() {
  return {layer_norm, index_scores, index_select};
}

}  // namespace motley::cuda
