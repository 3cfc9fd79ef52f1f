// One call of a delta rule over blocks of 64 tokens, as its kernels see it.
#pragma once

#include <span>

#include "ops/cuda/cuda_stream.h"
#include "ops/cuda/device_math.cuh"
#include "ops/gated_delta.h"

namespace motley::cuda {

struct DeltaSegment {
  int32_t first_row;
  int32_t rows;
  int32_t held;         // rows in the carry
  int32_t first_block;  // of the segment, counted over all segments of the call
  float* state;
  ConstRows held_keys;    // the carry as it was before the call: other thread blocks may have
  ConstRows held_decays;  // stored the next unfinished block already
  Rows keys;
  Rows updates;
  Rows decays;
};

struct DeltaCall {
  ConstRows qkv;
  ConstRows beta;
  ConstRows decay;
  const float* a_log;
  const float* dt_bias;
  Rows out;
  const DeltaSegment* segments;  // device memory
  int segment_count;
  GatedDeltaShape shape;
  bool flush;  // fold the carry, no new rows
  // The rule with a decay per key channel (ops/channel_delta.h): held_decays and decays of a
  // segment are one row, the decay since the block's start.
  bool by_channel;
  float lower_bound;  // of a channel's decay; 0: softplus
};

// Where a block of tokens lies.
struct DeltaBlockRows {
  int done;  // rows of the segment before it
  int held;  // rows of it that were carried in
  int rows;  // rows of it in all, at most kDeltaBlock
};

__device__ inline DeltaBlockRows delta_block_rows(const DeltaSegment& segment, int block) {
  DeltaBlockRows place;
  place.done = block == 0 ? 0 : block * kDeltaBlock - segment.held;
  place.held = block == 0 ? segment.held : 0;
  place.rows = min(kDeltaBlock, place.held + segment.rows - place.done);
  return place;
}

inline int delta_blocks(const DeltaSegment& segment) {
  return (segment.held + segment.rows + kDeltaBlock - 1) / kDeltaBlock;
}

// The segment that block `number` of the call belongs to.
__device__ inline const DeltaSegment& delta_segment_of(const DeltaCall& call, int number) {
  int index = 0;
  while (index + 1 < call.segment_count && number >= call.segments[index + 1].first_block) ++index;
  return call.segments[index];
}

// Rows that the carry must hold for the block of tokens to lie on the grid of positions.
inline int32_t delta_rows_before(const RowSegment& rows) {
  return static_cast<int32_t>(rows.first_position.value % kDeltaBlock);
}
// The first `rows` rows of a carry's part become `value`: tokens that the state holds already.
void fill_delta_rows(CudaStream& stream, const TensorView& view, int64_t rows, float value);

// A copy of the first `rows` rows of `view`, scratch of `stream`, in stream order.
ConstRows copy_delta_rows(CudaStream& stream, const TensorView& view, int64_t rows);

// The log of the decay that row `row` of the call brings to value head `head`.
__device__ inline float delta_log_decay(const DeltaCall& call, int64_t row, int head) {
  return -expf(call.a_log[head]) * softplus(call.decay.row(row)[head] + call.dt_bias[head]);
}

// The fast profile: everything about a block that does not need the state, for all blocks at once,
// then a scan over the blocks of each head (gated_delta_scan.cu). Scratch of `stream`.
void run_delta_scan(CudaStream& stream, DeltaCall call, std::span<const DeltaSegment> segments);

}  // namespace motley::cuda
