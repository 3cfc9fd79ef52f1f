// The delta rule with a decay per key channel; contract in ops/channel_delta.h.
//
// The fast profile takes blocks through the preparation and the scan of the other delta rule. The
// exact one, and key heads that the scan does not take, go token by token and leave no carry.
#include <vector>

#include "ops/cuda/channel_delta_call.cuh"
#include "ops/cuda/cuda_ops.h"
#include "ops/cuda/cuda_stream.h"
#include "ops/cuda/gated_delta_blocks.cuh"

namespace motley::cuda {
namespace {

constexpr int kThreads = 128;
constexpr int kKeysPerBlock = 8;

struct FoldCall {
  float* state;
  ConstRows keys;
  ConstRows updates;
  const float* decay;
  int held;
  int key_dim;  // of a head
  int value_dim;
};

// S <- diag(E) S + sum_j (faded k_j) d_j^T. Grid: (heads, blocks of keys).
__global__ void __launch_bounds__(kThreads) fold_kernel(const __grid_constant__ FoldCall call) {
  const int head = static_cast<int>(blockIdx.x);
  const int first = static_cast<int>(blockIdx.y) * kKeysPerBlock;
  const int64_t key_at = int64_t{head} * call.key_dim;
  float* state = call.state + key_at * call.value_dim;
  for (int col = static_cast<int>(threadIdx.x); col < call.value_dim; col += kThreads) {
    float sums[kKeysPerBlock];
#pragma unroll
    for (int i = 0; i < kKeysPerBlock; ++i) {
      const int key = min(first + i, call.key_dim - 1);
      sums[i] = call.decay[key_at + key] * state[int64_t{key} * call.value_dim + col];
    }
    for (int j = 0; j < call.held; ++j) {
      const float update = call.updates.row(j)[int64_t{head} * call.value_dim + col];
#pragma unroll
      for (int i = 0; i < kKeysPerBlock; ++i) {
        const int key = min(first + i, call.key_dim - 1);
        sums[i] = fmaf(call.keys.row(j)[key_at + key], update, sums[i]);
      }
    }
#pragma unroll
    for (int i = 0; i < kKeysPerBlock; ++i) {
      if (first + i < call.key_dim) state[int64_t{first + i} * call.value_dim + col] = sums[i];
    }
  }
}

void flush_carry(Stream& any, const ChannelDeltaShape& shape, const ChannelDeltaSegment& segment) {
  const ChannelDeltaCarry& carry = segment.carry;
  if (*carry.rows == 0) return;
  CudaStream& stream = cuda_stream(any);
  FoldCall call{};
  call.state = reinterpret_cast<float*>(segment.state.data);
  call.keys = {reinterpret_cast<const float*>(carry.keys.data), carry.keys.row_stride};
  call.updates = {reinterpret_cast<const float*>(carry.updates.data), carry.updates.row_stride};
  call.decay = reinterpret_cast<const float*>(carry.decay.data);
  call.held = *carry.rows;
  call.key_dim = shape.key_head_dim;
  call.value_dim = shape.value_head_dim;
  const dim3 grid(static_cast<unsigned>(shape.heads), grid_of(shape.key_head_dim, kKeysPerBlock));
  fold_kernel<<<grid, kThreads, 0, stream.handle()>>>(call);
  stream.check_launch("channel_delta.flush_carry");
  *carry.rows = 0;
}

void check_args(const ChannelDeltaArgs& args) {
  const ChannelDeltaShape& shape = args.shape;
  MOTLEY_CHECK(args.qkv.cols() == shape.conv_dim() && args.out.cols() == shape.value_dim() &&
                   args.beta.cols() == shape.heads && args.decay.cols() == shape.key_dim(),
               "views must match the shape of the layer");
  MOTLEY_CHECK(args.gate == DecayGate::kSoftplus || args.lower_bound < 0.0f,
               "the bound of a decay is negative");
}

void recurrent(Stream& stream, const ChannelDeltaArgs& args) {
  check_args(args);
  channel_delta_recurrent(stream, args);
}

DeltaSegment segment_of(CudaStream& stream, const ChannelDeltaSegment& segment) {
  const ChannelDeltaCarry& carry = segment.carry;
  DeltaSegment item{};
  item.first_row = segment.rows.first_row;
  item.rows = segment.rows.rows;
  item.held = *carry.rows;
  item.state = reinterpret_cast<float*>(segment.state.data);
  item.keys = rows_of(carry.keys);
  item.updates = rows_of(carry.updates);
  item.decays = rows_of(carry.decay);
  item.held_keys = {item.keys.data, item.keys.stride};
  item.held_decays = {item.decays.data, item.decays.stride};
  if (item.held > 0 && item.held + item.rows >= kDeltaBlock) {
    item.held_keys = copy_delta_rows(stream, carry.keys, item.held);
    item.held_decays = copy_delta_rows(stream, carry.decay, 1);
  }
  return item;
}

// As for the other rule (gated_delta_chunked.cu).
void align_carry(CudaStream& stream, const ChannelDeltaShape& shape,
                 const ChannelDeltaSegment& segment) {
  const int32_t before = delta_rows_before(segment.rows);
  if (*segment.carry.rows == before) return;
  flush_carry(stream, shape, segment);
  fill_delta_rows(stream, segment.carry.keys, before, 0.0f);
  fill_delta_rows(stream, segment.carry.updates, before, 0.0f);
  fill_delta_rows(stream, segment.carry.decay, before == 0 ? 0 : 1, 1.0f);
  *segment.carry.rows = before;
}

void run_blocks(CudaStream& stream, const ChannelDeltaArgs& args) {
  Arena::Scope scope(stream.scratch());
  std::vector<DeltaSegment> segments;
  for (const ChannelDeltaSegment& segment : args.segments) {
    if (segment.rows.rows == 0) continue;
    align_carry(stream, args.shape, segment);
    segments.push_back(segment_of(stream, segment));
    *segment.carry.rows = (*segment.carry.rows + segment.rows.rows) % kDeltaBlock;
  }
  if (segments.empty()) return;
  DeltaCall call{};
  call.qkv = rows_of(args.qkv);
  call.beta = rows_of(args.beta);
  call.decay = rows_of(args.decay);
  call.a_log = floats_of(args.a_log);
  call.dt_bias = floats_of(args.dt_bias);
  call.out = rows_of(args.out);
  call.shape = shape_as_gated(args.shape);
  call.by_channel = true;
  call.lower_bound = args.gate == DecayGate::kBounded ? args.lower_bound : 0.0f;
  run_delta_scan(stream, call, segments);
}

template <NumericProfile kProfile>
void chunked(Stream& any, const ChannelDeltaArgs& args) {
  check_args(args);
  for (const ChannelDeltaSegment& segment : args.segments) {
    MOTLEY_CHECK(!segment.carry.is_empty(), "the chunked form needs a carry");
  }
  if (kProfile == NumericProfile::kFast && args.shape.key_head_dim <= kScanKey) {
    return run_blocks(cuda_stream(any), args);
  }
  for (const ChannelDeltaSegment& segment : args.segments) flush_carry(any, args.shape, segment);
  channel_delta_recurrent(any, args);
}

}  // namespace

ChannelDeltaOps channel_delta_ops(NumericProfile profile) {
  if (profile == NumericProfile::kExact) {
    return {recurrent, chunked<NumericProfile::kExact>, flush_carry, channel_delta_commit};
  }
  return {recurrent, chunked<NumericProfile::kFast>, flush_carry, channel_delta_commit};
}

}  // namespace motley::cuda
