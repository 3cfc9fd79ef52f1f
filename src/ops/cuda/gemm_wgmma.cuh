// The Hopper tile kernel of gemm.h: 128 rows of W by 32 * kUnits rows of x.
//
// One warpgroup loads ahead, across tiles: codes by asynchronous copies, x by one bulk copy a
// stage. Two warpgroups of 64 rows of W decode their weights into the register operand of wgmma
// while their previous product runs. They meet the loading one, and each other, only at the
// barriers of the ring, so one decodes while the other multiplies. (Tiles of several sizes in one
// kernel leave ptxas without registers for asynchronous products.)
#pragma once

#include "ops/cuda/gemm_tile.cuh"
#include "ops/cuda/gemm_wgmma.h"
#include "ops/cuda/wgmma.cuh"

namespace motley::cuda {

inline constexpr int kWgmmaThreads = 384;
inline constexpr int kWgmmaMultipliers = 256;  // threads before the loading ones
inline constexpr int kWgmmaLoaders = 128;

template <int kBits, int kUnits>
using WgmmaStage = GemmStage<kBits, kUnits * kWgmmaUnit, kBits == kPlainBits ? 4 : 5>;

// A ring of stages in shared memory and its two barriers per slot.
template <typename Stage>
struct WgmmaRing {
  uint8_t* stages;
  uint32_t barriers;
  int slot = 0;
  int parity = 0;

  __device__ uint32_t full() const { return barriers + static_cast<uint32_t>(slot) * 16; }
  __device__ uint32_t empty() const { return full() + 8; }
  __device__ uint8_t* stage() const { return stages + slot * Stage::kBytes; }
  __device__ void advance() {
    if (++slot < Stage::kDepth) return;
    slot = 0;
    parity ^= 1;
  }
};

// Scales and biases of the two rows of W that a lane decodes, for two stages (128 columns). As they
// lie in the file: the first words only unless groups have 32 columns.
struct WgmmaScaleWords {
  uint32_t scale[2][2];  // [row][word]
  uint32_t bias[2][2];
};
// The same, a word for each stage: its first 32 columns in the low half, the others in the high.
struct WgmmaScales {
  uint32_t scale[2][2];  // [row][stage]
  uint32_t bias[2][2];
};

__device__ inline uint32_t load_u16(const uint8_t* bytes) {
  return *reinterpret_cast<const uint16_t*>(bytes);
}

// Of one row: whole windows in one load, the last one of odd shapes group by group.
__device__ inline void load_scale_words(const GemmCall& call, const uint8_t* row, int window,
                                        uint32_t (&words)[2]) {
  const int groups = 128 >> call.group_log2;
  if ((window + 1) * groups <= call.group_count) {
    const uint8_t* from = row + window * groups * 2;
    if (call.group_log2 == 5) {
      const uint2 both = *reinterpret_cast<const uint2*>(from);
      words[0] = both.x;
      words[1] = both.y;
    } else {
      words[0] = call.group_log2 == 6 ? load_u32(from) : load_u16(from);
    }
    return;
  }
  const auto at = [&](int i) {
    return load_u16(row + 2 * min(window * groups + i, call.group_count - 1));
  };
  words[0] = at(0) | (at(1) << 16);
  words[1] = at(2) | (at(3) << 16);
}

template <int kBits>
__device__ inline void load_wgmma_scales(const GemmCall& call, const GemmPlace& place, int window,
                                         WgmmaScaleWords& words) {
  if constexpr (kBits != kPlainBits) {
    const int row =
        place.w0 + static_cast<int>(threadIdx.x) / 32 * 16 + static_cast<int>(threadIdx.x) % 32 / 4;
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      const int64_t at = min(row + 8 * i, call.rows - 1) * call.scale_stride;
      load_scale_words(call, place.item.scales + at, window, words.scale[i]);
      load_scale_words(call, place.item.biases + at, window, words.bias[i]);
    }
  }
}

// To be called as late as the words are needed: it waits for their loads.
__device__ inline WgmmaScales arrange_scales(const GemmCall& call, const WgmmaScaleWords& words) {
  const uint32_t first = call.group_log2 == 5 ? 0x3210 : 0x1010;
  const uint32_t second = call.group_log2 == 5 ? 0x7654 : call.group_log2 == 6 ? 0x3232 : 0x1010;
  WgmmaScales scales;
#pragma unroll
  for (int i = 0; i < 2; ++i) {
    scales.scale[i][0] = __byte_perm(words.scale[i][0], words.scale[i][1], first);
    scales.scale[i][1] = __byte_perm(words.scale[i][0], words.scale[i][1], second);
    scales.bias[i][0] = __byte_perm(words.bias[i][0], words.bias[i][1], first);
    scales.bias[i][1] = __byte_perm(words.bias[i][0], words.bias[i][1], second);
  }
  return scales;
}

// Of a row in one stage.
struct StageScales {
  uint32_t scale[2];  // [row]
  uint32_t bias[2];
};

// Two k16 operands (8 registers) from block `block` of the codes in shared memory.
template <typename Stage, int kBits>
__device__ inline void decode_operands(const GemmCall& call, const uint8_t* stage, int block,
                                       const StageScales& scales, uint32_t (&a)[8]) {
  const int lane = static_cast<int>(threadIdx.x) % 32;
  const uint8_t* codes =
      stage + Stage::kXBytes + (static_cast<int>(threadIdx.x) / 32 * 16 + lane / 4) * Stage::kPitch;
  uint32_t w[2][4];
#pragma unroll
  for (int i = 0; i < 2; ++i) {
    const uint32_t scale =
        block == 0 ? low_half_twice(scales.scale[i]) : high_half_twice(scales.scale[i]);
    const uint32_t bias =
        block == 0 ? low_half_twice(scales.bias[i]) : high_half_twice(scales.bias[i]);
    scaled_unit<kBits>(call, codes + i * 8 * Stage::kPitch, block * 4 + lane % 4, scale, bias,
                       w[i]);
  }
#pragma unroll
  for (int step = 0; step < 2; ++step) {
    a[4 * step] = w[0][2 * step];
    a[4 * step + 1] = w[1][2 * step];
    a[4 * step + 2] = w[0][2 * step + 1];
    a[4 * step + 3] = w[1][2 * step + 1];
  }
}

// The products of one block of 32 columns with the rows of x, as one group.
template <int kXRows>
__device__ inline void multiply_block(uint32_t x_address, int block, const uint32_t (&a)[8],
                                      bool accumulate, float (&c)[kXRows / 2]) {
  wgmma_fence();
#pragma unroll
  for (int step = 0; step < 2; ++step) {
    const uint64_t x = wgmma_descriptor(x_address + static_cast<uint32_t>((block * 2 + step) * 32));
    wgmma<kXRows>(c, a + 4 * step, x, step > 0 || accumulate ? 1 : 0);
  }
  wgmma_commit();
}

template <int kXRows>
__device__ inline void store_wgmma(const GemmCall& call, const GemmPlace& place,
                                   const float (&c)[kXRows / 2]) {
  const int lane = static_cast<int>(threadIdx.x) % 32;
  const int row0 = place.w0 + static_cast<int>(threadIdx.x) / 32 * 16 + lane / 4;
  const GemmItem& item = place.item;
#pragma unroll
  for (int n = 0; n < kXRows / 4; ++n) {  // column tile n / 2, column n % 2 of the lane's pair
    const int index = place.first + n / 2 * 8 + lane % 4 * 2 + n % 2;
    if (index >= item.count) continue;
    const int64_t out = item.out_ids == nullptr ? item.first_out + index : item.out_ids[index];
    float* y = item.y + out * call.y_stride;
    if (row0 < call.rows) y[row0] = c[n / 2 * 4 + n % 2];
    if (row0 + 8 < call.rows) y[row0 + 8] = c[n / 2 * 4 + 2 + n % 2];
  }
}

// The sums of one tile, as a multiplying warp sees it. words: of its first two stages.
template <int kBits, int kUnits>
__device__ inline void multiply_tile(const GemmCall& call, const GemmPlace& place,
                                     WgmmaScaleWords words,
                                     WgmmaRing<WgmmaStage<kBits, kUnits>>& ring,
                                     float (&c)[kUnits * kWgmmaUnit / 2]) {
  using Stage = WgmmaStage<kBits, kUnits>;
  constexpr int kXRows = kUnits * kWgmmaUnit;
  const int stages = (call.cols + kTileK - 1) / kTileK;
  const bool speaks = threadIdx.x % 32 == 0;
  WgmmaScales scales{};
  uint32_t a0[8];
  uint32_t a1[8];
  uint32_t previous_empty = 0;
  for (int stage = 0; stage < stages; ++stage) {
    if (kBits != kPlainBits && stage % 2 == 0) {
      scales = arrange_scales(call, words);
      if (stage + 2 < stages) load_wgmma_scales<kBits>(call, place, stage / 2 + 1, words);
    }
    const int odd = stage % 2;
    const StageScales here{{odd == 0 ? scales.scale[0][0] : scales.scale[0][1],
                            odd == 0 ? scales.scale[1][0] : scales.scale[1][1]},
                           {odd == 0 ? scales.bias[0][0] : scales.bias[0][1],
                            odd == 0 ? scales.bias[1][0] : scales.bias[1][1]}};
    barrier_wait(ring.full(), ring.parity);
    const uint8_t* current = ring.stage();
    const uint32_t x_address = shared_address(current);
    wgmma_wait<1>();  // the product that read a0 is done
    decode_operands<Stage, kBits>(call, current, 0, here, a0);
    multiply_block<kXRows>(x_address, 0, a0, stage > 0, c);
    wgmma_wait<1>();  // the product that read a1 is done, and with it the stage before
    __syncwarp();     // every lane has read its codes of it
    if (stage > 0 && speaks) barrier_arrive(previous_empty);
    decode_operands<Stage, kBits>(call, current, 1, here, a1);
    multiply_block<kXRows>(x_address, 1, a1, true, c);
    previous_empty = ring.empty();
    ring.advance();
  }
  wgmma_wait<0>();
  __syncwarp();
  if (speaks) barrier_arrive(previous_empty);
}

// All tiles of a block. What the next tile needs to begin travels while this one is stored.
template <int kBits, int kUnits>
__device__ inline void multiply_tiles(const GemmCall& call, int w_tiles, int tiles,
                                      WgmmaRing<WgmmaStage<kBits, kUnits>>& ring) {
  constexpr int kXRows = kUnits * kWgmmaUnit;
  int tile = static_cast<int>(blockIdx.x);
  GemmPlace place = find_place(call, tile / w_tiles, tile % w_tiles, kXRows);
  WgmmaScaleWords first{};
  load_wgmma_scales<kBits>(call, place, 0, first);
  while (tile < tiles) {
    float c[kXRows / 2];  // written by the first product: zeroing it would serialise wgmma
    multiply_tile<kBits, kUnits>(call, place, first, ring, c);
    tile += static_cast<int>(gridDim.x);
    const int ahead = min(tile, tiles - 1);
    const GemmPlace next = find_place(call, ahead / w_tiles, ahead % w_tiles, kXRows);
    load_wgmma_scales<kBits>(call, next, 0, first);
    store_wgmma<kXRows>(call, place, c);
    place = next;
  }
}

// One tile, as the loading warps see it.
template <int kBits, int kUnits>
__device__ inline void load_tile(const GemmCall& call, const GemmPlace& place,
                                 WgmmaRing<WgmmaStage<kBits, kUnits>>& ring) {
  using Stage = WgmmaStage<kBits, kUnits>;
  const int thread = static_cast<int>(threadIdx.x) - kWgmmaMultipliers;
  const int stages = (call.cols + kTileK - 1) / kTileK;
  const __nv_bfloat16* x = call.x.pieces + (place.item.first_x + place.first) * int64_t{kTileK};
  for (int stage = 0; stage < stages; ++stage) {
    barrier_wait(ring.empty(), ring.parity ^ 1);
    uint8_t* target = ring.stage();
    if (thread == 0) {
      barrier_arrive_expecting(ring.full(), Stage::kXBytes);
      copy_bulk(shared_address(target), x + stage * call.x.rows * kTileK, Stage::kXBytes,
                ring.full());
    }
    issue_codes<Stage, kBits, kWgmmaLoaders>(call, place.item, place.w0, stage, thread,
                                             target + Stage::kXBytes);
    barrier_arrive_after_copies(ring.full());
    ring.advance();
  }
}

// Grid: as many blocks as run at a time; each takes tiles in steps of the grid, W tiles fastest.
template <int kBits, int kUnits>
__global__ void __launch_bounds__(kWgmmaThreads, 1)
    gemm_wgmma_kernel(const __grid_constant__ GemmCall call) {
#if defined(__CUDA_ARCH_FEAT_SM90_ALL)
  using Stage = WgmmaStage<kBits, kUnits>;
  constexpr int kXRows = kUnits * kWgmmaUnit;
  __shared__ uint64_t barriers[2 * Stage::kDepth];
  extern __shared__ uint8_t storage[];
  WgmmaRing<Stage> ring;
  ring.stages = storage + (1024 - shared_address(storage) % 1024) % 1024;
  ring.barriers = shared_address(barriers);
  if (threadIdx.x == 0) {
    for (int i = 0; i < Stage::kDepth; ++i) {
      // Full: every loading thread's copies and the bulk copy. Empty: every multiplying warp.
      barrier_init(ring.barriers + static_cast<uint32_t>(i) * 16, kWgmmaLoaders + 1);
      barrier_init(ring.barriers + static_cast<uint32_t>(i) * 16 + 8, kWgmmaMultipliers / 32);
    }
    barrier_init_done();
  }
  __syncthreads();
  const int w_tiles = (call.rows + kTileW - 1) / kTileW;
  const int tiles = call.x_tiles * w_tiles;
  if (threadIdx.x >= kWgmmaMultipliers) {
    give_registers<40>();
    for (int tile = static_cast<int>(blockIdx.x); tile < tiles;
         tile += static_cast<int>(gridDim.x)) {
      load_tile<kBits, kUnits>(call, find_place(call, tile / w_tiles, tile % w_tiles, kXRows),
                               ring);
    }
  } else {
    take_registers<232>();
    multiply_tiles<kBits, kUnits>(call, w_tiles, tiles, ring);
  }
#endif
}

}  // namespace motley::cuda
