// Routing and combination, defined in moe_routing.cu; contracts in ops/moe.h.
#pragma once

#include "ops/moe.h"

namespace motley::cuda {

void route_softmax(Stream& stream, const ConstTensorView& logits, RoutingParams params,
                   const ConstTensorView& forced, const Routing& routing);
void route_sigmoid(Stream& stream, const ConstTensorView& logits, const ConstTensorView& bias,
                   SigmoidRoutingParams params, const ConstTensorView& forced,
                   const Routing& routing);
void combine(Stream& stream, const ConstTensorView& pair_out, const Routing& routing,
             const ConstTensorView& shared, const TensorView& y);

}  // namespace motley::cuda
