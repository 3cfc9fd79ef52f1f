#include "ops/cuda/cuda_backend.h"
#include "ops/cuda/cuda_ops.h"

namespace motley {

OpTable cuda_op_table(NumericProfile profile) {
  OpTable table;
  table.name = "cuda";
  table.profile = profile;
  table.activation_dtype = DType::kF32;
  table.space = MemorySpace::kDevice;
  table.linear = cuda::linear_ops(profile);
  table.norm = cuda::norm_ops();
  table.convolution = cuda::convolution_ops();
  table.gated_delta = cuda::gated_delta_ops(profile);
  table.channel_delta = cuda::channel_delta_ops(profile);
  table.hyper = cuda::hyper_ops();
  table.latent = cuda::latent_ops(profile);
  table.index = cuda::index_ops();
  table.index_pool = cuda::index_pool_ops();
  table.attention = cuda::attention_ops(profile);
  table.moe = cuda::moe_ops(profile);
  table.swiglu_limit = true;
  return table;
}

}  // namespace motley
