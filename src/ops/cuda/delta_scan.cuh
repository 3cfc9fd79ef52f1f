// The scan of a delta rule over blocks of 64 tokens, in the fast profile; a .cu for each rule.
//
// Four warps own 16 columns of a head's state each, for good: the transposed state S^T stays in
// registers as accumulators, and what products read as operand A (S^T, U^T) are its own
// accumulators rounded to bfloat16, so that warps meet only where a block's data arrive. They pass
// both operands on to four other warps, which make the outputs while the state goes on. Sums run
// over absolute rows of the block in a fixed order (R5).
#pragma once

#include "ops/cuda/gated_delta_scan_data.cuh"

namespace motley::cuda {
namespace scan {

// S^T as operand A for 16 keys.
__device__ inline void pack_state(const StateValues& state, int step, uint32_t (&a)[4]) {
  const float(&low)[4] = state[2 * step];
  const float(&high)[4] = state[2 * step + 1];
  a[0] = pack_bf16(low[0], low[1]);
  a[1] = pack_bf16(low[2], low[3]);
  a[2] = pack_bf16(high[0], high[1]);
  a[3] = pack_bf16(high[2], high[3]);
}

// c += S^T k (or q) of every row, for 16 keys.
__device__ inline void multiply_keys(const uint8_t* keys, int step, const uint32_t (&a)[4],
                                     RowValues& c) {
#pragma unroll
  for (int n = 0; n < kRowTiles; n += 2) {
    uint32_t b[4];
    load_columns<key_chunk>(keys, 8 * n, 16 * step, b);
    mma_bf16(c[n], a[0], a[1], a[2], a[3], b[0], b[1]);
    mma_bf16(c[n + 1], a[0], a[1], a[2], a[3], b[2], b[3]);
  }
}

// S^T k of every row; the operands go to the other warps too.
__device__ inline void multiply_state(const StageBase& stage, const StateValues& state,
                                      const Place& place, Handover& handover, RowValues& by_key) {
  const int lane = static_cast<int>(threadIdx.x) % 32;
#pragma unroll
  for (int step = 0; step < kKeyTiles / 2; ++step) {
    uint32_t a[4];
    pack_state(state, step, a);
    handover.state[place.warp][step][lane] = make_uint4(a[0], a[1], a[2], a[3]);
    multiply_keys(stage.k, step, a, by_key);
  }
}

__device__ inline float2 pair_at(const float* values, int row) {
  return *reinterpret_cast<const float2*>(values + row);
}

// by_key becomes R = beta (v - e^G S^T k).
__device__ inline void make_right_side(const StageBase& stage, const Place& place,
                                       RowValues& by_key) {
  const float* value = &stage.value[place.lane_row][place.column - place.block_column];
#pragma unroll
  for (int n = 0; n < kRowTiles; ++n) {
    const float2 beta = pair_at(stage.gates.beta, 8 * n + place.lane_row);
    const float2 decay = pair_at(stage.gates.from_start, 8 * n + place.lane_row);
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      const float row_decay = i % 2 == 0 ? decay.x : decay.y;
      const float row_beta = i % 2 == 0 ? beta.x : beta.y;
      const float at = value[(8 * n + i % 2) * kValuePitch + i / 2 * 8];
      by_key[n][i] = row_beta * (at - row_decay * by_key[n][i]);
    }
  }
}

// Sixteen rows of the forward substitution, in place: two rows at a time go from the lane that
// holds them to the three others of its columns. low: rows 2t, 2t + 1 of the tile; high: 8 more.
__device__ inline void solve_tile(const DeltaDiagonal& diagonal, int tile, float (&low)[4],
                                  float (&high)[4]) {
  const int lane = static_cast<int>(threadIdx.x) % 32;
#pragma unroll
  for (int j = 0; j < 8; ++j) {
    const int owner = (lane & ~3) | (j % 4);
    const float(&own)[4] = j < 4 ? low : high;
    float first[2];
    float second[2];
#pragma unroll
    for (int c = 0; c < 2; ++c) {
      first[c] = __shfl_sync(kFullWarp, own[2 * c], owner);
      second[c] = __shfl_sync(kFullWarp, own[2 * c + 1], owner);
    }
    const float pair = diagonal.pair[tile][j];
    const float* entries = &diagonal.entries[tile][j][lane % 4][0][0];
    const float4 upper = *reinterpret_cast<const float4*>(entries);
    const float4 lower = *reinterpret_cast<const float4*>(entries + 4);
#pragma unroll
    for (int c = 0; c < 2; ++c) {
      second[c] = fmaf(pair, first[c], second[c]);
      if (j < 4) {
        low[2 * c] = fmaf(upper.y, second[c], fmaf(upper.x, first[c], low[2 * c]));
        low[2 * c + 1] = fmaf(upper.w, second[c], fmaf(upper.z, first[c], low[2 * c + 1]));
      }
      high[2 * c] = fmaf(lower.y, second[c], fmaf(lower.x, first[c], high[2 * c]));
      high[2 * c + 1] = fmaf(lower.w, second[c], fmaf(lower.z, first[c], high[2 * c + 1]));
    }
  }
}

// Two row tiles as an operand, rows scaled.
__device__ inline void pack_rows(const float (&low)[4], const float (&high)[4],
                                 const float2& scale_low, const float2& scale_high,
                                 uint32_t (&out)[4]) {
  out[0] = pack_bf16(low[0] * scale_low.x, low[1] * scale_low.y);
  out[1] = pack_bf16(low[2] * scale_low.x, low[3] * scale_low.y);
  out[2] = pack_bf16(high[0] * scale_high.x, high[1] * scale_high.y);
  out[3] = pack_bf16(high[2] * scale_high.x, high[3] * scale_high.y);
}

__device__ inline void multiply_tokens(const uint8_t* matrix, int tile, int from,
                                       const uint32_t (&a)[4], RowValues& c) {
  uint32_t b[4];
  load_columns<token_chunk>(matrix, 16 * tile, 16 * from, b);
  mma_bf16(c[2 * tile], a[0], a[1], a[2], a[3], b[0], b[1]);
  mma_bf16(c[2 * tile + 1], a[0], a[1], a[2], a[3], b[2], b[3]);
}

// R becomes U; as operands, plain for the other warps and decayed to the block's end.
__device__ inline void solve(const StageBase& stage, const Place& place, Handover& handover,
                             RowValues& rows, Operands& decayed) {
  Operands plain;
  const float2 one = make_float2(1.0f, 1.0f);
  const int lane = static_cast<int>(threadIdx.x) % 32;
#pragma unroll
  for (int tile = 0; tile < 4; ++tile) {
    float(&low)[4] = rows[2 * tile];
    float(&high)[4] = rows[2 * tile + 1];
#pragma unroll
    for (int from = 0; from < tile; ++from) {
      multiply_tokens(stage.a, tile, from, plain[from], rows);
    }
    solve_tile(stage.diagonal, tile, low, high);
    pack_rows(low, high, one, one, plain[tile]);
    handover.updates[place.warp][tile][lane] =
        make_uint4(plain[tile][0], plain[tile][1], plain[tile][2], plain[tile][3]);
    const int row = 16 * tile + place.lane_row;
    pack_rows(low, high, pair_at(stage.gates.to_end, row), pair_at(stage.gates.to_end, row + 8),
              decayed[tile]);
  }
}

// The keys that a block leaves in the state.
__device__ inline const uint8_t* folded_keys(const Stage<false>& stage) {
  return stage.k;
}
__device__ inline const uint8_t* folded_keys(const Stage<true>& stage) {
  return stage.folded.k;
}
// What the state's keys `key`, key + 1 decay by over a block.
__device__ inline float2 block_decay(const Stage<false>& stage, int /*key*/) {
  return make_float2(stage.gates.end, stage.gates.end);
}
__device__ inline float2 block_decay(const Stage<true>& stage, int key) {
  return pair_at(stage.folded.end, key);
}

// S^T <- e^G_63 S^T + U^T K.
template <bool kByChannel>
__device__ inline void fold(const Stage<kByChannel>& stage, const Place& place,
                            const Operands& decayed, StateValues& state) {
  const int lane = static_cast<int>(threadIdx.x) % 32;
#pragma unroll
  for (int n = 0; n < kKeyTiles; ++n) {
    const float2 end = block_decay(stage, 8 * n + place.lane_row);
#pragma unroll
    for (int i = 0; i < 4; ++i) state[n][i] *= i % 2 == 0 ? end.x : end.y;
  }
  const uint8_t* keys = folded_keys(stage);
#pragma unroll
  for (int from = 0; from < 4; ++from) {
    const uint32_t(&a)[4] = decayed[from];
#pragma unroll
    for (int n = 0; n < kKeyTiles; n += 2) {
      uint32_t b[4];
      load_matrix_x4_transposed(
          b, shared_address(keys) +
                 static_cast<uint32_t>(key_chunk(16 * from + lane % 16, n + lane / 16)));
      mma_bf16(state[n], a[0], a[1], a[2], a[3], b[0], b[1]);
      mma_bf16(state[n + 1], a[0], a[1], a[2], a[3], b[2], b[3]);
    }
  }
}

// Rows [rows.held, rows.rows) to `to`, whose row 0 is row 0 of the block.
__device__ inline void store_rows(const DeltaCall& call, const Place& place,
                                  const DeltaBlockRows& rows, const RowValues& values, float* to,
                                  int64_t stride) {
  const int dim = call.shape.value_head_dim;
  float* at = to + int64_t{place.head} * dim + place.column;
#pragma unroll
  for (int n = 0; n < kRowTiles; ++n) {
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      const int row = 8 * n + place.lane_row + i % 2;
      const bool inside = row >= rows.held && row < rows.rows && place.column + i / 2 * 8 < dim;
      if (inside) at[row * stride + i / 2 * 8] = values[n][i];
    }
  }
}

template <bool kByChannel>
__device__ inline void run_block(const DeltaCall& call, const Place& place, int block,
                                 const Stage<kByChannel>& stage, Handover& handover,
                                 StateValues& state) {
  RowValues rows = {};
  if (block > 0) meet(kTakenBarriers + place.warp, 64);
  multiply_state(stage, state, place, handover, rows);
  make_right_side(stage, place, rows);
  Operands decayed;
  solve(stage, place, handover, rows, decayed);
  announce(kReadyBarriers + place.warp, 64);
  const DeltaBlockRows here = delta_block_rows(place.segment, block);
  if (here.rows == kDeltaBlock) {
    fold(stage, place, decayed, state);
  } else {
    store_rows(call, place, here, rows, place.segment.updates.data, place.segment.updates.stride);
  }
}

// out = e^G S^T q + U^T P^T of a block.
__device__ inline void make_outputs(const DeltaCall& call, const Place& place, int block, bool last,
                                    const OutputStage& stage, const Handover& handover) {
  const int lane = static_cast<int>(threadIdx.x) % 32;
  uint4 state[kKeyTiles / 2];
  Operands updates;
  meet(kReadyBarriers + place.warp, 64);
#pragma unroll
  for (int step = 0; step < kKeyTiles / 2; ++step) {
    state[step] = handover.state[place.warp][step][lane];
  }
#pragma unroll
  for (int tile = 0; tile < 4; ++tile) {
    const uint4 words = handover.updates[place.warp][tile][lane];
    updates[tile][0] = words.x;
    updates[tile][1] = words.y;
    updates[tile][2] = words.z;
    updates[tile][3] = words.w;
  }
  if (!last) announce(kTakenBarriers + place.warp, 64);
  RowValues out = {};
#pragma unroll
  for (int step = 0; step < kKeyTiles / 2; ++step) {
    const uint32_t a[4] = {state[step].x, state[step].y, state[step].z, state[step].w};
    multiply_keys(stage.q, step, a, out);
  }
#pragma unroll
  for (int n = 0; n < kRowTiles; ++n) {
    const float2 decay = pair_at(stage.from_start, 8 * n + place.lane_row);
#pragma unroll
    for (int i = 0; i < 4; ++i) out[n][i] *= i % 2 == 0 ? decay.x : decay.y;
  }
#pragma unroll
  for (int tile = 0; tile < 4; ++tile) {
#pragma unroll
    for (int from = 0; from <= tile; ++from) {
      multiply_tokens(stage.p, tile, from, updates[from], out);
    }
  }
  const DeltaBlockRows here = delta_block_rows(place.segment, block);
  const int64_t first = int64_t{place.segment.first_row} + here.done - here.held;
  store_rows(call, place, here, out, call.out.data + first * call.out.stride, call.out.stride);
}

// Moves the warp's columns of the state between memory and the accumulators.
template <bool kStore>
__device__ inline void move_state(const DeltaCall& call, const Place& place, StateValues& state) {
  const int dim = call.shape.value_head_dim;
  const int keys = call.shape.key_head_dim;
  float* at = place.segment.state + int64_t{place.head} * keys * dim + place.column;
#pragma unroll
  for (int n = 0; n < kKeyTiles; ++n) {
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      const int key = 8 * n + place.lane_row + i % 2;
      const bool inside = key < keys && place.column + i / 2 * 8 < dim;
      float* element = at + int64_t{key} * dim + i / 2 * 8;
      if constexpr (kStore) {
        if (inside) *element = state[n][i];
      } else {
        state[n][i] = inside ? *element : 0.0f;
      }
    }
  }
}

// Blocks one after the other through one or two slots; `work` is given each with its slot.
template <typename Slot, typename Work>
__device__ inline void for_each_block(const DeltaCall& call, const DeltaBlocks& data,
                                      const Place& place, int stages, int barrier, Slot (&slots)[2],
                                      Work work) {
  const int blocks = (place.segment.held + place.segment.rows + kDeltaBlock - 1) / kDeltaBlock;
  for (int block = 0; block < blocks; ++block) {
    if (stages == 2 && block + 1 < blocks) {
      issue(call, data, place, block + 1, slots[(block + 1) % 2]);
      copy_async_wait<1>();
    } else {
      copy_async_wait<0>();
    }
    meet(barrier, kThreads);
    work(block, block + 1 == blocks, slots[stages == 2 ? block % 2 : 0]);
    meet(barrier, kThreads);
    if (stages == 1 && block + 1 < blocks) issue(call, data, place, block + 1, slots[0]);
  }
}

// Grid: (groups of kWarps * kColumns columns, value heads, segments). stages: 1 or 2.
template <bool kByChannel>
__global__ void __launch_bounds__(2 * kThreads, 1)
    scan_kernel(const __grid_constant__ DeltaCall call, DeltaBlocks data, int stages) {
  extern __shared__ __align__(128) uint8_t storage[];
  auto& handover = *reinterpret_cast<Handover*>(storage);
  auto& state_slots = *reinterpret_cast<Stage<kByChannel>(*)[2]>(storage + sizeof(Handover));
  auto& output_slots = *reinterpret_cast<OutputStage(*)[2]>(
      storage + sizeof(Handover) + static_cast<size_t>(stages) * sizeof(Stage<kByChannel>));
  const Place place = find_place(call);
  if (threadIdx.x >= kThreads) {
    issue(call, data, place, 0, output_slots[0]);
    for_each_block(call, data, place, stages, kOutputBarrier, output_slots,
                   [&](int block, bool last, const OutputStage& stage) {
                     make_outputs(call, place, block, last, stage, handover);
                   });
    return;
  }
  StateValues state;
  issue(call, data, place, 0, state_slots[0]);
  move_state<false>(call, place, state);
  for_each_block(call, data, place, stages, kStateBarrier, state_slots,
                 [&](int block, bool, const Stage<kByChannel>& stage) {
                   run_block(call, place, block, stage, handover, state);
                 });
  move_state<true>(call, place, state);
}

}  // namespace scan

template <bool kByChannel>
void launch_delta_scan(CudaStream& stream, const DeltaCall& call, const DeltaBlocks& blocks,
                       unsigned segments) {
  const int capability = stream.compute_capability();
  const int stages = capability == 90 || capability == 100 ? 2 : 1;
  const int bytes = scan::shared_bytes<kByChannel>(stages);
  auto* kernel = scan::scan_kernel<kByChannel>;
  stream.note(cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, bytes),
              "delta rule, chunked");
  const dim3 grid(grid_of(call.shape.value_head_dim, scan::kBlockColumns),
                  static_cast<unsigned>(call.shape.value_heads), segments);
  kernel<<<grid, 2 * scan::kThreads, static_cast<size_t>(bytes), stream.handle()>>>(call, blocks,
                                                                                    stages);
  stream.check_launch("delta rule, chunked (scan)");
}

}  // namespace motley::cuda
