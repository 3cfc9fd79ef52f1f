// The CPU ops other than the matrix products, over any table of kernels.
//
// Contracts: the op headers. These functions check views, share the work among the threads of the
// stream and hand plain pointers to the kernels. Work too small to pay for waking threads runs on
// the caller's thread. Which thread runs what changes no bit of the result.
#pragma once

#include <algorithm>
#include <span>

#include "ops/attention.h"
#include "ops/channel_delta.h"
#include "ops/convolution.h"
#include "ops/cpu/cpu_kernels.h"
#include "ops/gated_delta.h"
#include "ops/hyper_connection.h"
#include "ops/index.h"
#include "ops/index_pool.h"
#include "ops/latent_attention.h"
#include "ops/moe.h"
#include "ops/norm.h"

namespace motley {

void cpu_rms_norm(const CpuKernels& kernels, Stream& stream, const ConstTensorView& x,
                  const ConstTensorView& weight, RmsNormParams params, const TensorView& y);
void cpu_gated_rms_norm(const CpuKernels& kernels, Stream& stream, const ConstTensorView& x,
                        const ConstTensorView& gate, const ConstTensorView& weight,
                        RmsNormParams params, const TensorView& y);
void cpu_add(const CpuKernels& kernels, Stream& stream, const ConstTensorView& x,
             const TensorView& y);
void cpu_silu_multiply(const CpuKernels& kernels, Stream& stream, const ConstTensorView& gate,
                       const ConstTensorView& up, SwigluParams params, const TensorView& y);
void cpu_sigmoid_multiply(const CpuKernels& kernels, Stream& stream, const ConstTensorView& gate,
                          const TensorView& y);

void cpu_add_bias(const CpuKernels& kernels, Stream& stream, const ConstTensorView& bias,
                  const TensorView& y);
void cpu_zero_rows(const CpuKernels& kernels, Stream& stream, std::span<const int32_t> rows,
                   const TensorView& y);

void cpu_causal_convolution(const CpuKernels& kernels, Stream& stream, const ConstTensorView& u,
                            const ConstTensorView& weight,
                            std::span<const ConvolutionSegment> segments, const TensorView& y);
void cpu_commit_window(const CpuKernels& kernels, Stream& stream,
                       const ConvolutionSegment& segment);

void cpu_delta_recurrent(const CpuKernels& kernels, Stream& stream, const GatedDeltaArgs& args);
void cpu_delta_chunked(const CpuKernels& kernels, Stream& stream, const GatedDeltaArgs& args);
void cpu_delta_flush_carry(const CpuKernels& kernels, Stream& stream, const GatedDeltaShape& shape,
                           const GatedDeltaSegment& segment);
void cpu_delta_commit(const CpuKernels& kernels, Stream& stream, const GatedDeltaShape& shape,
                      const GatedDeltaSegment& segment);

void cpu_channel_recurrent(const CpuKernels& kernels, Stream& stream, const ChannelDeltaArgs& args);
void cpu_channel_chunked(const CpuKernels& kernels, Stream& stream, const ChannelDeltaArgs& args);
void cpu_channel_flush_carry(const CpuKernels& kernels, Stream& stream,
                             const ChannelDeltaShape& shape, const ChannelDeltaSegment& segment);
void cpu_channel_commit(const CpuKernels& kernels, Stream& stream, const ChannelDeltaShape& shape,
                        const ChannelDeltaSegment& segment);

void cpu_hyper_mix(const CpuKernels& kernels, Stream& stream, const ConstTensorView& streams,
                   const HyperWeights& weights, const HyperParams& params,
                   const TensorView& coefficients, const TensorView& x);
void cpu_hyper_merge(const CpuKernels& kernels, Stream& stream, const ConstTensorView& y,
                     const ConstTensorView& coefficients, const TensorView& streams);
void cpu_hyper_spread(const CpuKernels& kernels, Stream& stream, const ConstTensorView& x,
                      const TensorView& streams);
void cpu_hyper_mean(const CpuKernels& kernels, Stream& stream, const ConstTensorView& streams,
                    const TensorView& y);

void cpu_pool_keys(const CpuKernels& kernels, Stream& stream, const ConstTensorView& k,
                   const ConstTensorView& gate, const ConstTensorView& ape,
                   std::span<const IndexPoolSegment> segments, const TensorView& keys);

void cpu_head_norm_rotary(const CpuKernels& kernels, Stream& stream,
                          const HeadNormRotaryArgs& args);
void cpu_cache_write(const CpuKernels& kernels, Stream& stream, const ConstTensorView& k,
                     const ConstTensorView& v, std::span<const AttentionSegment> segments);
void cpu_attend(const CpuKernels& kernels, Stream& stream, const AttentionArgs& args);
void cpu_attention_merge(const CpuKernels& kernels, Stream& stream,
                         std::span<const PartialAttention> parts, const PartialAttention& result);

void cpu_latent_rotate(const CpuKernels& kernels, Stream& stream, const RotateArgs& args);
void cpu_row_write(const CpuKernels& kernels, Stream& stream, const ConstTensorView& x,
                   std::span<const RowCacheSegment> segments);
void cpu_head_linear(const CpuKernels& kernels, Stream& stream, const ConstTensorView& x,
                     std::span<const WeightMatrix> weights, bool transposed, const TensorView& y);
void cpu_latent_attend(const CpuKernels& kernels, Stream& stream, const LatentAttentionArgs& args);

void cpu_layer_norm(const CpuKernels& kernels, Stream& stream, const ConstTensorView& x,
                    const ConstTensorView& weight, const ConstTensorView& bias, float epsilon,
                    const TensorView& y);
void cpu_index_scores(const CpuKernels& kernels, Stream& stream, const IndexScoresArgs& args);
void cpu_index_select(const CpuKernels& kernels, Stream& stream, const IndexSelectArgs& args);

void cpu_route_sigmoid(const CpuKernels& kernels, Stream& stream, const ConstTensorView& logits,
                       const ConstTensorView& bias, SigmoidRoutingParams params,
                       const ConstTensorView& forced, const Routing& routing);
void cpu_route_softmax(const CpuKernels& kernels, Stream& stream, const ConstTensorView& logits,
                       RoutingParams params, const ConstTensorView& forced, const Routing& routing);
void cpu_combine(const CpuKernels& kernels, Stream& stream, const ConstTensorView& pair_out,
                 const Routing& routing, const ConstTensorView& shared, const TensorView& y);

// Rows per piece of a loop over rows of `elements` cheap operations each: pieces of some
// microseconds, the cost of waking a thread.
inline int64_t row_grain(int64_t elements) {
  constexpr int64_t kElementsPerPiece = 16384;
  return std::max<int64_t>(1, kElementsPerPiece / std::max<int64_t>(1, elements));
}

}  // namespace motley
