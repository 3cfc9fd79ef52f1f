// What the scan of a delta rule (delta_scan.cuh) keeps in shared memory, and the copies into it.
#pragma once

#include "ops/cuda/gated_delta_blocks.cuh"

namespace motley::cuda::scan {

inline constexpr int kWarps = 4;
inline constexpr int kThreads =
    32 * kWarps;                     // of those that hold the state; as many make the outputs
inline constexpr int kColumns = 16;  // of the state, per warp
inline constexpr int kKeyTiles = kScanKey / 8;
inline constexpr int kRowTiles = kDeltaBlock / 8;

inline constexpr int kBlockColumns = kWarps * kColumns;
inline constexpr int kValuePitch =
    kBlockColumns + 4;  // free of bank conflicts as scale_rows reads it

// What the scan of the state reads of a block.
struct StageBase {
  uint8_t k[sizeof(DeltaKeys::k)];
  uint8_t a[sizeof(DeltaScores::a)];
  DeltaDiagonal diagonal;
  DeltaGates gates;
  float value[kDeltaBlock][kValuePitch];  // v of the fresh rows, u of the carried ones
};
template <bool kByChannel>
struct Stage : StageBase {};
template <>
struct Stage<true> : StageBase {
  DeltaFolded folded;
};
// What the outputs need of it.
struct OutputStage {
  uint8_t q[sizeof(DeltaKeys::q)];
  uint8_t p[sizeof(DeltaScores::p)];
  float from_start[kDeltaBlock];
};
// Operands of a block on their way from the one to the other, by warp.
struct Handover {
  uint4 state[kWarps][kKeyTiles / 2][32];
  uint4 updates[kWarps][4][32];
};
template <bool kByChannel>
constexpr int shared_bytes(int stages) {
  constexpr size_t kStageBytes = sizeof(Stage<kByChannel>) + sizeof(OutputStage);
  return static_cast<int>(sizeof(Handover) + static_cast<size_t>(stages) * kStageBytes);
}

// Barriers: within the warps of one kind; between two warps, one by one.
inline constexpr int kStateBarrier = 1;
inline constexpr int kOutputBarrier = 2;
inline constexpr int kReadyBarriers = 3;
inline constexpr int kTakenBarriers = kReadyBarriers + kWarps;

__device__ inline void meet(int barrier, int threads) {
  asm volatile("bar.sync %0, %1;" ::"r"(barrier), "r"(threads) : "memory");
}
__device__ inline void announce(int barrier, int threads) {
  asm volatile("bar.arrive %0, %1;" ::"r"(barrier), "r"(threads) : "memory");
}

// Accumulators [tile of 8 rows or keys][column g, rows 2t and 2t + 1; column g + 8, the same].
using RowValues = float[kRowTiles][4];
using StateValues = float[kKeyTiles][4];
// Operand A of 16 columns by 16 rows, four of them to a block.
using Operands = uint32_t[4][4];

struct Place {
  DeltaSegment segment;
  int head;
  int block_column;  // the thread block's first
  int column;        // the lane's first; the other is 8 further
  int lane_row;      // 2t
  int warp;          // of its kind
  bool values_aligned;
};

__device__ inline Place find_place(const DeltaCall& call) {
  Place place;
  const int lane = static_cast<int>(threadIdx.x) % 32;
  place.segment = call.segments[blockIdx.z];
  place.head = static_cast<int>(blockIdx.y);
  place.block_column = static_cast<int>(blockIdx.x) * kBlockColumns;
  place.warp = static_cast<int>(threadIdx.x) / 32 % kWarps;
  place.column = place.block_column + place.warp * kColumns + lane / 4;
  place.lane_row = lane % 4 * 2;
  place.values_aligned = call.shape.value_head_dim % 4 == 0 && call.qkv.stride % 4 == 0 &&
                         place.segment.updates.stride % 4 == 0 &&
                         reinterpret_cast<uintptr_t>(call.qkv.data) % 16 == 0 &&
                         reinterpret_cast<uintptr_t>(place.segment.updates.data) % 16 == 0;
  return place;
}

// v of the fresh rows of a block, u of the carried ones; zeros past the ends.
__device__ inline void issue_values(const DeltaCall& call, const Place& place, int block,
                                    StageBase& target) {
  constexpr int kChunks = kBlockColumns / 4;
  const DeltaBlockRows rows = delta_block_rows(place.segment, block);
  const int dim = call.shape.value_head_dim;
  const int thread = static_cast<int>(threadIdx.x) % kThreads;
  const int col = thread % kChunks * 4;
  const int64_t at = int64_t{place.head} * dim + place.block_column + col;
  const int64_t first = int64_t{place.segment.first_row} + rows.done - rows.held;
  const float* v = call.qkv.data + 2 * int64_t{call.shape.key_heads} * call.shape.key_head_dim + at;
#pragma unroll 4
  for (int row = thread / kChunks; row < kDeltaBlock; row += kThreads / kChunks) {
    const float* source =
        row < rows.held ? place.segment.updates.row(row) + at : v + (first + row) * call.qkv.stride;
    const int left = row < rows.rows ? dim - place.block_column - col : 0;
    if (left <= 0) source = call.qkv.data;
    if (place.values_aligned) {
      copy_async_16(&target.value[row][col], source, min(max(left, 0), 4) * 4);
    } else {
      for (int i = 0; i < 4; ++i) {
        copy_async_small<4>(&target.value[row][col + i], i < left ? source + i : call.qkv.data,
                            i < left);
      }
    }
  }
}

template <typename T>
__device__ inline void issue_copy(const T& from, T& to) {
  const auto* source = reinterpret_cast<const uint8_t*>(&from);
  auto* target = reinterpret_cast<uint8_t*>(&to);
  const int first = static_cast<int>(threadIdx.x) % kThreads * 16;
#pragma unroll
  for (int at = 0; at < static_cast<int>(sizeof(T)); at += kThreads * 16) {
    if (at + first < static_cast<int>(sizeof(T))) {
      copy_async_16(target + at + first, source + at + first, 16);
    }
  }
}

// What the two kinds of warps read of a block.
struct BlockData {
  const DeltaKeys* keys;
  const DeltaHead* head;
  const DeltaFolded* folded;
};

__device__ inline BlockData find_block(const DeltaCall& call, const DeltaBlocks& blocks,
                                       const Place& place, int block) {
  const int key_head = place.head / (call.shape.value_heads / call.shape.key_heads);
  const int64_t number = int64_t{place.segment.first_block} + block;
  return {blocks.keys + number * call.shape.key_heads + key_head,
          blocks.heads + number * call.shape.value_heads + place.head,
          blocks.folded + number * call.shape.value_heads + place.head};
}

template <bool kByChannel>
__device__ inline void issue(const DeltaCall& call, const DeltaBlocks& blocks, const Place& place,
                             int block, Stage<kByChannel>& target) {
  const BlockData data = find_block(call, blocks, place, block);
  issue_copy(data.keys->k, target.k);
  issue_copy(data.head->scores.a, target.a);
  issue_copy(data.head->scores.diagonal, target.diagonal);
  issue_copy(data.head->gates, target.gates);
  if constexpr (kByChannel) issue_copy(*data.folded, target.folded);
  issue_values(call, place, block, target);
  copy_async_commit();
}

__device__ inline void issue(const DeltaCall& call, const DeltaBlocks& blocks, const Place& place,
                             int block, OutputStage& target) {
  const BlockData data = find_block(call, blocks, place, block);
  issue_copy(data.keys->q, target.q);
  issue_copy(data.head->scores.p, target.p);
  issue_copy(data.head->gates.from_start, target.from_start);
  copy_async_commit();
}

}  // namespace motley::cuda::scan
