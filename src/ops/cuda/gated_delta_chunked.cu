#include <vector>

#include "ops/cuda/cuda_ops.h"
#include "ops/cuda/cuda_stream.h"
#include "ops/cuda/gated_delta_block.cuh"
#include "ops/cuda/gated_delta_call.cuh"
#include "ops/cuda/gated_delta_kernels.h"

namespace motley::cuda {
namespace {

// The part of the work that one thread block does, and the block of tokens it is at.
struct Place {
  DeltaSegment segment;
  int head;
  int key_head;
  int col0;        // first column of the slice
  int done;        // rows of the segment before this block of tokens
  int held;        // rows of the block that were carried in
  int rows;        // rows of the block in all
  bool owns_keys;  // writes the carry's keys
};

// Rows i, i + 8, i + 16, i + 24 of the block: normalised keys (and queries, scaled) into the
// operand planes. All loads are issued before the first use.
__device__ void load_four_rows(const DeltaCall& call, const Place& place, int first,
                               DeltaShared& shared) {
  constexpr int kEach = kDeltaMaxKey / 32;
  const int lane = static_cast<int>(threadIdx.x) % 32;
  const int dim = call.shape.key_head_dim;
  float q[4][kEach];
  float k[4][kEach];
#pragma unroll
  for (int j = 0; j < 4; ++j) {
    const int i = first + 8 * j;
    const bool fresh = i >= place.held && i < place.rows;
    const int64_t row = place.segment.first_row + place.done + i - place.held;
    const float* q_in = call.qkv.row(fresh ? row : 0) + int64_t{place.key_head} * dim;
    const float* k_in = i < place.held
                            ? place.segment.held_keys.row(i) + int64_t{place.key_head} * dim
                            : q_in + int64_t{call.shape.key_heads} * dim;
#pragma unroll
    for (int m = 0; m < kEach; ++m) {
      const int c = 2 * lane + 64 * (m / 2) + m % 2;
      q[j][m] = fresh && c < dim ? q_in[c] : 0.0f;
      k[j][m] = i < place.rows && c < dim ? k_in[c] : 0.0f;
    }
  }
#pragma unroll
  for (int j = 0; j < 4; ++j) {
    const int i = first + 8 * j;
    const bool fresh = i >= place.held && i < place.rows;
    float q_sum = 0;
    float k_sum = 0;
#pragma unroll
    for (int m = 0; m < kEach; ++m) {
      q_sum += q[j][m] * q[j][m];
      k_sum += k[j][m] * k[j][m];
    }
    const float q_scale = rsqrtf(warp_sum(q_sum) + 1e-6f) * rsqrtf(static_cast<float>(dim));
    const float k_norm = rsqrtf(warp_sum(k_sum) + 1e-6f);
    const float k_scale = fresh ? k_norm : 1.0f;  // carried keys are normalised already
    float* carried = place.segment.keys.row(i) + int64_t{place.key_head} * dim;
#pragma unroll
    for (int m = 0; m < kEach; m += 2) {
      const int c = 2 * lane + 32 * m;
      if (c >= dim) continue;
      const float first = k[j][m] * k_scale;
      const float second = k[j][m + 1] * k_scale;
      store_pair(shared.k, i, c, first, second);
      store_pair(shared.q, i, c, q[j][m] * q_scale, q[j][m + 1] * q_scale);
      if (fresh && place.owns_keys && place.rows < kDeltaBlock) {
        carried[c] = first;
        carried[c + 1] = second;
      }
    }
  }
}

// G and beta of the block's rows; G is summed in row order.
__device__ void load_gates(const DeltaCall& call, const Place& place, DeltaShared& shared) {
  const int thread = static_cast<int>(threadIdx.x);
  if (thread < kDeltaBlock) {
    const bool fresh = thread >= place.held && thread < place.rows;
    const int64_t row = place.segment.first_row + place.done + thread - place.held;
    float g = 0;
    float beta = 0;
    if (fresh) {
      g = delta_log_decay(call, row, place.head);
      beta = sigmoid(call.beta.row(row)[place.head]);
    } else if (thread < place.held) {
      g = place.segment.held_decays.row(thread)[place.head];
    }
    shared.sums[thread] = g;
    shared.decays[thread] = g;
    shared.beta[thread] = beta;
  }
  __syncthreads();
  if (thread != 0) return;
  float sum = 0;
  for (int first = 0; first < kDeltaBlock; first += 16) {
    float g[16];
#pragma unroll
    for (int i = 0; i < 16; ++i) g[i] = shared.sums[first + i];
#pragma unroll
    for (int i = 0; i < 16; ++i) {
      sum += g[i];
      shared.sums[first + i] = sum;
    }
  }
}

__device__ void load_block(const DeltaCall& call, const Place& place, const StateSlice& state,
                           DeltaShared& shared) {
  const int warp = static_cast<int>(threadIdx.x) / 32;
  load_gates(call, place, shared);
  load_four_rows(call, place, warp, shared);
  load_four_rows(call, place, warp + 32, shared);
  if (warp * 16 >= call.shape.key_head_dim) return;
#pragma unroll
  for (int n = 0; n < 4; ++n) {
#pragma unroll
    for (int i = 0; i < 4; i += 2) {
      store_pair(shared.s, warp * 16 + fragment_row(i), fragment_col(n, i), state.c[n][i],
                 state.c[n][i + 1]);
    }
  }
}

// v of the fresh rows, u of the carried ones: this warp's tile of 16 rows by 16 columns.
__device__ void load_right_side(const DeltaCall& call, const Place& place, float (&value)[2][4]) {
  const int warp = static_cast<int>(threadIdx.x) / 32;
  const int dim = call.shape.value_head_dim;
  const int64_t at_head = int64_t{place.head} * dim + place.col0;
  const int64_t at_value = int64_t{2} * call.shape.key_heads * call.shape.key_head_dim + at_head;
#pragma unroll
  for (int n = 0; n < 2; ++n) {
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      const int row = warp / 2 * 16 + fragment_row(i);
      const int col = warp % 2 * 16 + fragment_col(n, i);
      const bool inside = place.col0 + col < dim && row < place.rows;
      const float* source =
          row < place.held
              ? place.segment.updates.row(row) + at_head
              : call.qkv.row(place.segment.first_row + place.done + row - place.held) + at_value;
      value[n][i] = inside ? source[col] : 0.0f;
    }
  }
}

// R of the fresh rows and U of the carried ones into shared.r. by_key: S^T k.
__device__ void store_right_side(const Place& place, const float (&value)[2][4],
                                 const float (&by_key)[2][4], DeltaShared& shared) {
  const int warp = static_cast<int>(threadIdx.x) / 32;
#pragma unroll
  for (int n = 0; n < 2; ++n) {
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      const int row = warp / 2 * 16 + fragment_row(i);
      const int col = warp % 2 * 16 + fragment_col(n, i);
      const float read = expf(shared.sums[row]) * by_key[n][i];
      shared.r[row][col] = row < place.held ? value[n][i] : shared.beta[row] * (value[n][i] - read);
    }
  }
}

__device__ void store_outputs(const DeltaCall& call, const Place& place, const float (&out)[2][4]) {
  const int warp = static_cast<int>(threadIdx.x) / 32;
  const int dim = call.shape.value_head_dim;
#pragma unroll
  for (int n = 0; n < 2; ++n) {
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      const int row = warp / 2 * 16 + fragment_row(i);
      const int col = place.col0 + warp % 2 * 16 + fragment_col(n, i);
      if (row < place.held || row >= place.rows || col >= dim) continue;
      call.out.row(place.segment.first_row + place.done + row -
                   place.held)[int64_t{place.head} * dim + col] = out[n][i];
    }
  }
}

// Keeps the unfinished block; keys are stored as they are loaded.
__device__ void store_carry(const DeltaCall& call, const Place& place, const DeltaShared& shared) {
  const int dim = call.shape.value_head_dim;
  for (int i = static_cast<int>(threadIdx.x); i < place.rows * kDeltaColumns; i += kDeltaThreads) {
    const int row = i / kDeltaColumns;
    const int col = place.col0 + i % kDeltaColumns;
    if (row < place.held || col >= dim) continue;
    place.segment.updates.row(row)[int64_t{place.head} * dim + col] =
        shared.r[row][i % kDeltaColumns];
  }
  const int row = static_cast<int>(threadIdx.x);
  if (place.col0 == 0 && row >= place.held && row < place.rows) {
    place.segment.decays.row(row)[place.head] = shared.decays[row];
  }
}

__device__ void run_block(const DeltaCall& call, const Place& place, StateSlice& state,
                          DeltaShared& shared) {
  const int warp = static_cast<int>(threadIdx.x) / 32;
  const int key_dim = call.shape.key_head_dim;
  float value[2][4];
  load_right_side(call, place, value);
  load_block(call, place, state, shared);
  __syncthreads();
  float by_key[2][4] = {};
  float out[2][4] = {};
  const Planes s = planes_of(shared.s);
  multiply_add<false, true>(planes_of(shared.k), warp / 2 * 16, s, warp % 2 * 16, key_dim, by_key);
  multiply_add<false, true>(planes_of(shared.q), warp / 2 * 16, s, warp % 2 * 16, key_dim, out);
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    const float decay = expf(shared.sums[warp / 2 * 16 + fragment_row(i)]);
    out[0][i] *= decay;
    out[1][i] *= decay;
  }
  store_right_side(place, value, by_key, shared);
  block_scores(shared, key_dim);
  __syncthreads();
  block_solve(shared, place.held);
  store_updates(shared, false, 0);
  __syncthreads();
  multiply_add<false, true>(planes_of(shared.p), warp / 2 * 16, planes_of(shared.u), warp % 2 * 16,
                            kDeltaBlock, out);
  store_outputs(call, place, out);
  if (place.rows < kDeltaBlock) store_carry(call, place, shared);
  __syncthreads();
}

// Moves the state's slice between memory and the accumulators.
template <bool kStore>
__device__ void move_state(const DeltaCall& call, const Place& place, StateSlice& state) {
  const int warp = static_cast<int>(threadIdx.x) / 32;
  const int dim = call.shape.value_head_dim;
#pragma unroll
  for (int n = 0; n < 4; ++n) {
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      const int row = warp * 16 + fragment_row(i);
      const int col = place.col0 + fragment_col(n, i);
      const bool inside = row < call.shape.key_head_dim && col < dim;
      float* element =
          place.segment.state + (int64_t{place.head} * call.shape.key_head_dim + row) * dim + col;
      if constexpr (kStore) {
        if (inside) *element = state.c[n][i];
      } else {
        state.c[n][i] = inside ? *element : 0.0f;
      }
    }
  }
}

// The carried block alone: its updates and gates as they are.
__device__ void flush_block(const DeltaCall& call, Place& place, StateSlice& state,
                            DeltaShared& shared) {
  place.rows = place.held;
  float value[2][4];
  load_right_side(call, place, value);
  load_block(call, place, state, shared);
  __syncthreads();
  const float none[2][4] = {};
  store_right_side(place, value, none, shared);
  __syncthreads();
  fold_block(shared, state, place.rows, call.shape.key_head_dim);
}

// Grid: (column slices, value heads, segments).
__global__ void __launch_bounds__(kDeltaThreads, 2)
    chunked_kernel(const __grid_constant__ DeltaCall call) {
  extern __shared__ __align__(16) uint8_t storage[];
  auto& shared = *reinterpret_cast<DeltaShared*>(storage);
  Place place{};
  place.segment = call.segments[blockIdx.z];
  place.head = static_cast<int>(blockIdx.y);
  const int heads_per_key = call.shape.value_heads / call.shape.key_heads;
  place.key_head = place.head / heads_per_key;
  place.col0 = static_cast<int>(blockIdx.x) * kDeltaColumns;
  place.owns_keys = place.col0 == 0 && place.head % heads_per_key == 0;
  place.held = place.segment.held;
  StateSlice state;
  move_state<false>(call, place, state);
  if (call.flush) {
    flush_block(call, place, state, shared);
  }
  while (place.done < place.segment.rows) {
    const int fresh = min(kDeltaBlock - place.held, place.segment.rows - place.done);
    place.rows = place.held + fresh;
    run_block(call, place, state, shared);
    if (place.rows == kDeltaBlock) {
      fold_block(shared, state, kDeltaBlock, call.shape.key_head_dim);
    }
    place.done += fresh;
    place.held = 0;
  }
  move_state<true>(call, place, state);
}

bool is_supported(CudaStream& stream, const GatedDeltaShape& shape) {
  if (shape.key_head_dim <= kDeltaMaxKey && shape.key_head_dim % 16 == 0) return true;
  stream.note(cudaErrorNotSupported, "gated_delta.chunked: key heads of 16, 32, .. 128 only");
  return false;
}

void launch(CudaStream& stream, DeltaCall call, std::span<const DeltaSegment> segments) {
  call.segments = stream.upload(segments);
  constexpr int kBytes = sizeof(DeltaShared);
  stream.note(
      cudaFuncSetAttribute(chunked_kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, kBytes),
      "gated_delta.chunked");
  const dim3 grid(grid_of(call.shape.value_head_dim, kDeltaColumns),
                  static_cast<unsigned>(call.shape.value_heads),
                  static_cast<unsigned>(segments.size()));
  chunked_kernel<<<grid, kDeltaThreads, kBytes, stream.handle()>>>(call);
  stream.check_launch("gated_delta.chunked");
}

DeltaSegment segment_of(CudaStream& stream, const GatedDeltaSegment& segment, int32_t rows) {
  const DeltaCarry& carry = segment.carry;
  DeltaSegment item{};
  item.first_row = segment.rows.first_row;
  item.rows = rows;
  item.held = *carry.rows;
  item.state = reinterpret_cast<float*>(segment.state.data);
  item.keys = rows_of(carry.keys);
  item.updates = rows_of(carry.updates);
  item.decays = rows_of(carry.decays);
  item.held_keys = {item.keys.data, item.keys.stride};
  item.held_decays = {item.decays.data, item.decays.stride};
  if (item.held > 0 && item.held + rows >= kDeltaBlock) {
    item.held_keys = copy_delta_rows(stream, carry.keys, item.held);
    item.held_decays = copy_delta_rows(stream, carry.decays, item.held);
  }
  return item;
}

// The same in both profiles: a carry is folded once, so its cost does not matter.
void flush_carry(Stream& any, const GatedDeltaShape& shape, const GatedDeltaSegment& segment) {
  if (*segment.carry.rows == 0) return;
  CudaStream& stream = cuda_stream(any);
  Arena::Scope scope(stream.scratch());
  if (!is_supported(stream, shape)) return;
  const DeltaSegment item = segment_of(stream, segment, 0);
  *segment.carry.rows = 0;
  DeltaCall call{};
  call.shape = shape;
  call.flush = true;
  launch(stream, call, {&item, 1});
}

// A sequence that went token by token inside a block has no carry: its tokens since the block's
// start are in the state. They become carried rows that do nothing, so that blocks lie on the grid.
void align_carry(CudaStream& stream, const GatedDeltaShape& shape,
                 const GatedDeltaSegment& segment) {
  const int32_t before = delta_rows_before(segment.rows);
  if (*segment.carry.rows == before) return;
  flush_carry(stream, shape, segment);
  fill_delta_rows(stream, segment.carry.keys, before, 0.0f);
  fill_delta_rows(stream, segment.carry.updates, before, 0.0f);
  fill_delta_rows(stream, segment.carry.decays, before, 0.0f);
  *segment.carry.rows = before;
}

template <NumericProfile kProfile>
void chunked(Stream& any, const GatedDeltaArgs& args) {
  CudaStream& stream = cuda_stream(any);
  Arena::Scope scope(stream.scratch());
  std::vector<DeltaSegment> segments;
  for (const GatedDeltaSegment& segment : args.segments) {
    if (segment.rows.rows == 0) continue;
    align_carry(stream, args.shape, segment);
    segments.push_back(segment_of(stream, segment, segment.rows.rows));
    *segment.carry.rows = (*segment.carry.rows + segment.rows.rows) % kDeltaBlock;
  }
  if (segments.empty() || !is_supported(stream, args.shape)) return;
  DeltaCall call{};
  call.qkv = rows_of(args.qkv);
  call.beta = rows_of(args.beta);
  call.decay = rows_of(args.decay);
  call.a_log = floats_of(args.a_log);
  call.dt_bias = floats_of(args.dt_bias);
  call.out = rows_of(args.out);
  call.shape = args.shape;
  if (kProfile == NumericProfile::kExact) {
    launch(stream, call, segments);
  } else {
    run_delta_scan(stream, call, segments);
  }
}

}  // namespace

GatedDeltaOps gated_delta_ops(NumericProfile profile) {
  if (profile == NumericProfile::kExact) {
    return {gated_delta_recurrent, chunked<NumericProfile::kExact>, flush_carry,
            gated_delta_commit};
  }
  return {gated_delta_recurrent, chunked<NumericProfile::kFast>, flush_carry, gated_delta_commit};
}

}  // namespace motley::cuda
