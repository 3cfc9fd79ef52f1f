// The groups of the float64 reference backend, one file each.
//
// Plain loops in the order of the formulas: short enough to be checked by eye against the source
// that each op header names. Activations, caches and state are kF64; weight vectors are kF32.
#pragma once

#include "ops/op_table.h"

namespace motley {

LinearOps reference_linear_ops();
NormOps reference_norm_ops();
ConvolutionOps reference_convolution_ops();
GatedDeltaOps reference_gated_delta_ops();
ChannelDeltaOps reference_channel_delta_ops();
HyperOps reference_hyper_ops();
IndexPoolOps reference_index_pool_ops();
AttentionOps reference_attention_ops();
LatentOps reference_latent_ops();
IndexOps reference_index_ops();
decltype(MoeOps::route_softmax) reference_route_softmax();
decltype(MoeOps::route_sigmoid) reference_route_sigmoid();
decltype(MoeOps::experts) reference_experts();
decltype(MoeOps::combine) reference_combine();

}  // namespace motley
