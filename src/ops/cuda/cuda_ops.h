// The ops of this backend, by group, for the table in cuda_op_table.cpp. Contracts: ops/*.h.
#pragma once

#include "ops/op_table.h"

namespace motley::cuda {

// Ops whose arithmetic depends on the profile have one entry per profile.
LinearOps linear_ops(NumericProfile profile);
NormOps norm_ops();
ConvolutionOps convolution_ops();
GatedDeltaOps gated_delta_ops(NumericProfile profile);
ChannelDeltaOps channel_delta_ops(NumericProfile profile);
HyperOps hyper_ops();
LatentOps latent_ops(NumericProfile profile);
IndexOps index_ops();
IndexPoolOps index_pool_ops();
AttentionOps attention_ops(NumericProfile profile);
MoeOps moe_ops(NumericProfile profile);

}  // namespace motley::cuda
