// What the tile kernels of gemm.h share: the call, the copies into shared memory, the weights.
//
// Tile: 128 rows of W against 128 rows of x (mma) or up to 192 (wgmma), K in stages of 64. The x
// part of a stage holds rows of 128 bytes, 16-byte chunks swizzled by row % 8 (the 128-byte swizzle
// of wgmma, free of bank conflicts for ldmatrix).
#pragma once

#include "ops/cuda/device_math.cuh"
#include "ops/cuda/prepared_rows.h"
#include "ops/cuda/tensor_core.cuh"
#include "ops/cuda/weight_units.cuh"

namespace motley::cuda {

inline constexpr int kTileW = 128;
inline constexpr int kTileX = 128;
inline constexpr int kTileK = 64;

struct GemmItem {
  const uint8_t* codes;
  const uint8_t* scales;
  const uint8_t* biases;
  const uint8_t* up_codes;  // gated items: the other matrix, else null
  const uint8_t* up_scales;
  const uint8_t* up_biases;
  const int32_t* out_ids;  // null: first_out + i
  float* y;
  int32_t first_x;
  int32_t first_out;
  int32_t count;
};

// Rows of an item's list from `first` on, as many as a tile holds.
struct GemmTile {
  int32_t item;
  int32_t first;
};

struct GemmCall {
  GemmItem single;
  const GemmItem* items;  // device memory, or null: `single`
  const GemmTile* tiles;  // with `items`
  int x_tiles;
  int w_tiles;
  __nv_bfloat16* hidden;  // gated items: kTileMajor, else null
  int64_t hidden_rows;
  float limit;  // of gated items
  PreparedRows x;
  int64_t y_stride;
  int64_t code_stride;
  int64_t scale_stride;
  int rows;  // of W
  int cols;
  int group_log2;
  int group_count;
  bool scales_are_f16;
};

// kXRows: rows of x in a stage, kDepth: stages in the ring.
template <int kBits, int kXRows, int kDepthOf>
struct GemmStage {
  static constexpr int kDepth = kDepthOf;
  static constexpr int kRowBytes = kTileK * kBits / 8;
  static constexpr int kCopy = kRowBytes % 16 == 0 ? 16 : 8;
  static constexpr int kPitch = kRowBytes + (kBits == kPlainBits ? 64 : kBits == 8 ? 32 : 16);
  static constexpr int kXBytes = kXRows * kTileK * 2;
  // A multiple of 1,024, so that every stage keeps the alignment of the swizzle.
  static constexpr int kCodeBytes = (kTileW * kPitch + 1023) / 1024 * 1024;
  static constexpr int kBytes = kXBytes + kCodeBytes;
  static constexpr int kSharedBytes = kDepth * kBytes + 1024;
};

__device__ inline int x_chunk_offset(int row, int chunk) {
  return row * 128 + ((chunk ^ (row & 7)) * 16);
}

// The codes of 128 rows of W in one stage, copied by kThreads threads.
template <typename Stage, int kBits, int kThreads>
__device__ inline void issue_codes(const GemmCall& call, const GemmItem& item, int w0, int stage,
                                   int thread, uint8_t* codes) {
  constexpr int kChunks = Stage::kRowBytes / Stage::kCopy;
  const int row_bytes = static_cast<int>(static_cast<int64_t>(call.cols) * kBits / 8);
#pragma unroll
  for (int i = 0; i < (kTileW * kChunks + kThreads - 1) / kThreads; ++i) {
    const int chunk = thread + i * kThreads;
    if (kTileW * kChunks % kThreads != 0 && chunk >= kTileW * kChunks) break;
    const int row = chunk / kChunks;
    const int at = chunk % kChunks * Stage::kCopy;
    const int offset = stage * Stage::kRowBytes + at;
    const bool inside = w0 + row < call.rows && offset < row_bytes;
    const uint8_t* source = item.codes + (inside ? (w0 + row) * call.code_stride + offset : 0);
    if constexpr (Stage::kCopy == 16) {
      copy_async_16(codes + row * Stage::kPitch + at, source,
                    inside ? min(row_bytes - offset, 16) : 0);
    } else {
      copy_async_small<8>(codes + row * Stage::kPitch + at, source, inside);
    }
  }
}

// Scale (low half) and bias (high half) of one row of W for one group, as they lie in the file.
__device__ inline uint32_t load_group_scale(const GemmCall& call, const GemmItem& item, int row,
                                            int group) {
  const int64_t at = static_cast<int64_t>(min(row, call.rows - 1)) * call.scale_stride +
                     2 * min(group, call.group_count - 1);
  const uint32_t scale = *reinterpret_cast<const uint16_t*>(item.scales + at);
  const uint32_t bias = *reinterpret_cast<const uint16_t*>(item.biases + at);
  return scale | (bias << 16);
}

struct GemmPlace {
  GemmItem item;
  int w0;     // first row of W
  int first;  // first entry of the item's list
};

__device__ inline GemmPlace find_place(const GemmCall& call, int x_tile, int w_tile,
                                       int x_tile_rows) {
  GemmPlace place;
  place.item = call.single;
  place.first = x_tile * x_tile_rows;
  if (call.items != nullptr) {
    const GemmTile tile = call.tiles[x_tile];
    place.item = call.items[tile.item];
    place.first = tile.first;
  }
  place.w0 = w_tile * (call.hidden != nullptr ? kTileW / 2 : kTileW);
  return place;
}

// The same 16 bits twice: the low half of a word, or its high half.
__device__ inline uint32_t low_half_twice(uint32_t word) {
  return __byte_perm(word, 0, 0x1010);
}
__device__ inline uint32_t high_half_twice(uint32_t word) {
  return __byte_perm(word, 0, 0x3232);
}

// The four pairs of a unit with scale and bias applied, rounded once: fused in bfloat16 where code,
// scale and bias are exact in it, else in float32. scale, bias: as they lie in the file, twice.
// kHalfScales: they may be F16.
template <int kBits, bool kHalfScales>
__device__ inline void scaled_unit(const GemmCall& call, const uint8_t* row, int unit,
                                   uint32_t scale_pair, uint32_t bias_pair, uint32_t (&pairs)[4]) {
  if constexpr (kBits == kPlainBits) {
    decode_unit<kBits>(row, unit, pairs);
    return;
  }
  const bool halves = kHalfScales && call.scales_are_f16;
  if (kBits <= 6 && !halves) {
    decode_unit<kBits, false>(row, unit, pairs);
#pragma unroll
    for (int j = 0; j < 4; ++j) pairs[j] = fma_bf16x2(pairs[j], scale_pair, bias_pair);
    return;
  }
  decode_unit<kBits>(row, unit, pairs);
  float scale = low_bf16(scale_pair);
  float bias = low_bf16(bias_pair);
  if (halves) {
    scale = __half2float(__ushort_as_half(static_cast<uint16_t>(scale_pair)));
    bias = __half2float(__ushort_as_half(static_cast<uint16_t>(bias_pair)));
  }
  bias = fmaf(scale, code_centre<kBits>(), bias);
#pragma unroll
  for (int j = 0; j < 4; ++j) {
    pairs[j] =
        pack_bf16(fmaf(scale, low_bf16(pairs[j]), bias), fmaf(scale, high_bf16(pairs[j]), bias));
  }
}

}  // namespace motley::cuda
