// What the scan of a delta rule reads of a block of 64 tokens, in the fast profile.
//
// With rows i, j of the block, G the running sum of the decays' logarithms and the names of
// gated_delta_block.cuh: the keys and queries of a key head, and for each value head -A, P, what
// scales the rows, and how much the state decays. Rows that were carried in have -A = 0, beta = 1
// and e^G = 0, which makes their right side the update that the carry holds; rows past the end
// have beta = 0 and so update nothing.
//
// With a decay per key channel (ops/channel_delta.h) every head has a key head. Its keys and
// queries hold the decay since the block's start already, and the keys faded to the block's end are
// other rows: e^G is 1 for the fresh rows, 0 for the carried ones, and e^(G_63 - G) is 1.
#pragma once

#include <cstdint>

#include "ops/cuda/gated_delta_call.cuh"
#include "ops/cuda/tensor_core.cuh"

namespace motley::cuda {

inline constexpr int kScanKey = 128;  // key dimension, zeros beyond the real one

// Rows of bfloat16; 16-byte chunks are swizzled by row % 8.
struct DeltaKeys {
  uint8_t k[kDeltaBlock * kScanKey * 2];
  uint8_t q[kDeltaBlock * kScanKey * 2];
};

// The diagonal tiles of -A for solve_tile of the scan.
struct DeltaDiagonal {
  // [tile][columns 2j, 2j + 1][t][row][2], rows 2t, 2t + 1, 8 + 2t, 9 + 2t
  float entries[4][8][4][4][2];
  float pair[4][8];  // row 2j + 1, column 2j
};

struct DeltaScores {
  uint8_t a[kDeltaBlock * kDeltaBlock * 2];  // -A, below the diagonal tiles of 16 x 16
  uint8_t p[kDeltaBlock * kDeltaBlock * 2];
  DeltaDiagonal diagonal;
};

struct DeltaGates {
  float beta[kDeltaBlock];
  float from_start[kDeltaBlock];  // e^G
  float to_end[kDeltaBlock];      // e^(G_63 - G)
  float end;                      // e^G_63
  float unused[31];
};

struct DeltaHead {
  DeltaScores scores;
  DeltaGates gates;
};
static_assert(sizeof(DeltaKeys) % 128 == 0 && sizeof(DeltaHead) % 128 == 0);

// What the end of a block with a decay per channel takes instead.
struct DeltaFolded {
  uint8_t k[kDeltaBlock * kScanKey * 2];  // as DeltaKeys
  float end[kScanKey];                    // by channel
};
static_assert(sizeof(DeltaFolded) % 128 == 0);

// Per block of the call, counted over its segments.
struct DeltaBlocks {
  DeltaKeys* keys;      // [blocks][key_heads]
  DeltaHead* heads;     // [blocks][value_heads]
  DeltaFolded* folded;  // [blocks][value_heads], or null: one decay per head
};

__device__ inline int key_chunk(int row, int chunk) {
  return row * (kScanKey * 2) + ((chunk ^ (row & 7)) * 16);
}
__device__ inline int token_chunk(int row, int chunk) {
  return row * (kDeltaBlock * 2) + ((chunk ^ (row & 7)) * 16);
}

// Operand B of two neighbouring column tiles from rows [column][k], with the offset of a chunk.
template <int (*kOffset)(int, int)>
__device__ inline void load_columns(const uint8_t* matrix, int col0, int k, uint32_t (&out)[4]) {
  const int lane = static_cast<int>(threadIdx.x) % 32;
  load_matrix_x4(
      out, shared_address(matrix) + static_cast<uint32_t>(kOffset(col0 + lane / 16 * 8 + lane % 8,
                                                                  k / 8 + lane / 8 % 2)));
}

void launch_delta_prepare(CudaStream& stream, const DeltaCall& call, const DeltaBlocks& blocks,
                          int block_count);
void launch_channel_prepare(CudaStream& stream, const DeltaCall& call, const DeltaBlocks& blocks,
                            int block_count);

// The scan over the blocks of each head, with one decay per head or one per channel.
template <bool kByChannel>
void launch_delta_scan(CudaStream& stream, const DeltaCall& call, const DeltaBlocks& blocks,
                       unsigned segments);

}  // namespace motley::cuda
