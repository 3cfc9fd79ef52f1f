#include "ops/reference/reference_ops.h"

namespace motley {

OpTable reference_op_table() {
  OpTable table;
  table.name = "reference";
  table.profile = NumericProfile::kExact;
  table.activation_dtype = DType::kF64;
  table.space = MemorySpace::kHost;
  table.linear = reference_linear_ops();
  table.norm = reference_norm_ops();
  table.convolution = reference_convolution_ops();
  table.gated_delta = reference_gated_delta_ops();
  table.channel_delta = reference_channel_delta_ops();
  table.hyper = reference_hyper_ops();
  table.index_pool = reference_index_pool_ops();
  table.swiglu_limit = true;
  table.attention = reference_attention_ops();
  table.latent = reference_latent_ops();
  table.index = reference_index_ops();
  table.moe.route_softmax = reference_route_softmax();
  table.moe.route_sigmoid = reference_route_sigmoid();
  table.moe.experts = reference_experts();
  table.moe.combine = reference_combine();
  return table;
}

}  // namespace motley
