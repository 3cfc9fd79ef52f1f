// All kernels and their table. Included last in each kernels_<isa>.cpp, after one simd_*.h.
#pragma once

// clang-format off: each file uses those above it.
#include "ops/cpu/cpu_kernels.h"
#include "ops/cpu/math_inl.h"
#include "ops/cpu/norm_inl.h"
#include "ops/cpu/convolution_inl.h"
#include "ops/cpu/tile_inl.h"
#include "ops/cpu/delta_recurrent_inl.h"
#include "ops/cpu/delta_block_inl.h"
#include "ops/cpu/channel_delta_inl.h"
#include "ops/cpu/hyper_connection_inl.h"
#include "ops/cpu/index_pool_inl.h"
#include "ops/cpu/attention_inl.h"
#include "ops/cpu/index_inl.h"
// clang-format on

namespace motley {
namespace {

constexpr CpuKernels make_kernels() {
  CpuKernels kernels;
  kernels.lanes = kLanes;
  kernels.delta_columns = kDeltaColumns;
  kernels.attention_pairs = kTilePairs;
  kernels.rms_norm = rms_norm;
  kernels.gated_rms_norm = gated_rms_norm;
  kernels.add = add_rows;
  kernels.silu_multiply = silu_multiply;
  kernels.sigmoid_multiply = sigmoid_multiply;
  kernels.sigmoid_scale = sigmoid_scale;
  kernels.exp = map<exp_vec>;
  kernels.log = map<log_vec>;
  kernels.sigmoid = map<sigmoid_vec>;
  kernels.silu = map<silu_vec>;
  kernels.softplus = map<softplus_vec>;
  kernels.convolution_scratch = convolution_scratch;
  kernels.convolution = convolution;
  kernels.l2_scale = l2_scale;
  kernels.delta_gates = delta_gates;
  kernels.delta_recurrent_scratch = delta_recurrent_scratch;
  kernels.delta_recurrent = delta_recurrent;
  kernels.delta_replay = delta_replay;
  kernels.delta_block_scratch = delta_block_scratch;
  kernels.delta_block = delta_block;
  kernels.channel_decay = channel_decay;
  kernels.channel_recurrent_scratch = channel_recurrent_scratch;
  kernels.channel_recurrent = channel_recurrent;
  kernels.channel_block_scratch = channel_block_scratch;
  kernels.channel_block = channel_block;
  kernels.hyper_dots = hyper_dots;
  kernels.hyper_merge = hyper_merge;
  kernels.mean_square = mean_square;
  kernels.index_pool = index_pool;
  kernels.rotate = rotate;
  kernels.to_bf16 = to_bf16;
  kernels.scale_padded = scale_padded;
  kernels.attention_scratch = attention_scratch;
  kernels.attention = attention;
  kernels.attention_join = attention_join;
  kernels.attention_finish = attention_finish;
  kernels.attention_merge = attention_merge;
  kernels.index_keys = kIndexKeys;
  kernels.layer_norm = layer_norm;
  kernels.index_scores = index_scores;
  kernels.widen = widen;
  kernels.weighted_rows = weighted_rows;
  kernels.combine = combine;
  return kernels;
}

}  // namespace
}  // namespace motley
