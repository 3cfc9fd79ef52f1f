// The mix of hyper-connections (hyper_mix.cu); contract in ops/hyper_connection.h.
#pragma once

#include "ops/hyper_connection.h"

namespace motley::cuda {

void hyper_mix(Stream& stream, const ConstTensorView& streams, const HyperWeights& weights,
               const HyperParams& params, const TensorView& coefficients, const TensorView& x);

}  // namespace motley::cuda
