// What the kernels of the delta rule with a decay per key channel share (ops/channel_delta.h).
#pragma once

#include "ops/channel_delta.h"
#include "ops/cuda/device_math.cuh"

namespace motley::cuda {

// Every head has a key head of its own.
inline GatedDeltaShape shape_as_gated(const ChannelDeltaShape& shape) {
  return {shape.heads, shape.heads, shape.key_head_dim, shape.value_head_dim};
}

// e^g of a channel. a: with its bias; rate: e^a_log; lower_bound: of g, or 0 for softplus.
__device__ inline float channel_factor(float a, float rate, float lower_bound) {
  return expf(lower_bound < 0 ? lower_bound * sigmoid(rate * a) : -rate * softplus(a));
}

// The token-by-token form (delta_recurrent.cu).
void channel_delta_recurrent(Stream& stream, const ChannelDeltaArgs& args);
void channel_delta_commit(Stream& stream, const ChannelDeltaShape& shape,
                          const ChannelDeltaSegment& segment);

}  // namespace motley::cuda
