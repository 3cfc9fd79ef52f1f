// The Hopper tile kernel of gemm.h: 128 rows of W by 32 * kUnits rows of x.
//
// One warpgroup loads ahead, across tiles: codes by asynchronous copies, x by one bulk copy a
// stage. Two warpgroups of 64 rows of W decode the weights of a stage into the register operands
// of wgmma while the stage before is multiplied; stages alternate between two sets of registers.
// They meet the loading one, and each other, only at the barriers of the ring. (Tiles of several
// sizes in one kernel, or a loop between a product and the wait for it, make ptxas serialise them.)
#pragma once

#include "ops/cuda/gemm_tile.cuh"
#include "ops/cuda/gemm_wgmma.h"
#include "ops/cuda/wgmma.cuh"

namespace motley::cuda {

inline constexpr int kWgmmaThreads = 384;
inline constexpr int kWgmmaMultipliers = 256;  // threads before the loading ones
inline constexpr int kWgmmaLoaders = 128;

// As many stages as shared memory takes, up to eight.
template <int kBits, int kUnits>
constexpr int wgmma_depth() {
  constexpr int kFits = (227 * 1024 - 2048) / GemmStage<kBits, kUnits * kWgmmaUnit, 1>::kBytes;
  return kFits < 8 ? kFits : 8;
}

template <int kBits, int kUnits>
using WgmmaStage = GemmStage<kBits, kUnits * kWgmmaUnit, wgmma_depth<kBits, kUnits>()>;

// A ring of stages in shared memory and its two barriers per slot.
template <typename Stage>
struct WgmmaRing {
  uint8_t* stages;
  uint32_t first;  // the address of `stages` in shared memory
  uint32_t barriers;
  int slot = 0;
  int parity = 0;

  __device__ uint32_t full() const { return barriers + static_cast<uint32_t>(slot) * 16; }
  __device__ uint32_t empty() const { return full() + 8; }
  __device__ uint8_t* stage() const { return stages + slot * Stage::kBytes; }
  __device__ uint32_t address() const {
    return first + static_cast<uint32_t>(slot * Stage::kBytes);
  }
  // Waits for the data of the stage `ahead` of this one.
  __device__ void wait_full(int ahead) const {
    const bool wraps = slot + ahead >= Stage::kDepth;
    const int at = slot + ahead - (wraps ? Stage::kDepth : 0);
    barrier_wait(barriers + static_cast<uint32_t>(at) * 16, wraps ? parity ^ 1 : parity);
  }
  __device__ void advance() {
    if (++slot < Stage::kDepth) return;
    slot = 0;
    parity ^= 1;
  }
};

// A tile of gated items holds 64 rows of each matrix: of 16 rows the first 8 are the gate's and the
// others the same of up, so that a lane has both. The eight are those whose results make up chunk
// `row / 16` of the hidden rows (RowOrder).
__device__ inline int gated_row(int row) {
  return row / 64 * 32 + row % 4 * 8 + row / 16 % 4 + row / 4 % 2 * 4;
}

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

// Where a lane's scales and biases lie.
struct WgmmaScaleRows {
  const uint8_t* scale[2];
  const uint8_t* bias[2];
};

template <int kBits>
__device__ inline WgmmaScaleRows find_scale_rows(const GemmCall& call, const GemmPlace& place) {
  WgmmaScaleRows rows{};
  if constexpr (kBits != kPlainBits) {
    const int row =
        static_cast<int>(threadIdx.x) / 32 * 16 + static_cast<int>(threadIdx.x) % 32 / 4;
    const bool gated = place.item.up_codes != nullptr;
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      const int w_row = place.w0 + (gated ? gated_row(row) : row + 8 * i);
      const int64_t at = min(w_row, call.rows - 1) * call.scale_stride;
      const bool up = gated && i == 1;
      rows.scale[i] = (up ? place.item.up_scales : place.item.scales) + at;
      rows.bias[i] = (up ? place.item.up_biases : place.item.biases) + at;
    }
  }
  return rows;
}

// Two stages that reach past the last group: group by group.
__device__ inline void load_last_scales(const GemmCall& call, const uint8_t* row, int first,
                                        uint32_t (&words)[2]) {
  uint32_t at[4];
#pragma unroll
  for (int i = 0; i < 4; ++i) at[i] = load_u16(row + 2 * min(first + i, call.group_count - 1));
  words[0] = at[0] | (at[1] << 16);
  words[1] = at[2] | (at[3] << 16);
}

// Stages 2 window and 2 window + 1.
template <int kBits>
__device__ inline void load_wgmma_scales(const GemmCall& call, const WgmmaScaleRows& rows,
                                         int window, WgmmaScaleWords& words) {
  if constexpr (kBits == kPlainBits) return;
  const int first = (window * 128) >> call.group_log2;
  const int at = 2 * first;
  if (first + (128 >> call.group_log2) > call.group_count) {
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      load_last_scales(call, rows.scale[i], first, words.scale[i]);
      load_last_scales(call, rows.bias[i], first, words.bias[i]);
    }
  } else if (call.group_log2 == 6) {
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      words.scale[i][0] = load_u32(rows.scale[i] + at);
      words.bias[i][0] = load_u32(rows.bias[i] + at);
    }
  } else if (call.group_log2 == 5) {
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      const uint2 scale = *reinterpret_cast<const uint2*>(rows.scale[i] + at);
      const uint2 bias = *reinterpret_cast<const uint2*>(rows.bias[i] + at);
      words.scale[i][0] = scale.x;
      words.scale[i][1] = scale.y;
      words.bias[i][0] = bias.x;
      words.bias[i][1] = bias.y;
    }
  } else {
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      words.scale[i][0] = load_u16(rows.scale[i] + at);
      words.bias[i][0] = load_u16(rows.bias[i] + at);
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

// The operands of a stage, 16 columns for each four registers; kOdd: the second of two stages.
template <typename Stage, int kBits, bool kOdd>
__device__ inline void decode_operands(const GemmCall& call, const uint8_t* stage,
                                       const WgmmaScales& scales, uint32_t (&a)[16]) {
  const int lane = static_cast<int>(threadIdx.x) % 32;
  const uint8_t* codes =
      stage + Stage::kXBytes + (static_cast<int>(threadIdx.x) / 32 * 16 + lane / 4) * Stage::kPitch;
#pragma unroll
  for (int block = 0; block < 2; ++block) {
    uint32_t w[2][4];
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      const uint32_t scale = scales.scale[i][kOdd ? 1 : 0];
      const uint32_t bias = scales.bias[i][kOdd ? 1 : 0];
      scaled_unit<kBits, false>(call, codes + i * 8 * Stage::kPitch, block * 4 + lane % 4,
                                block == 0 ? low_half_twice(scale) : high_half_twice(scale),
                                block == 0 ? low_half_twice(bias) : high_half_twice(bias), w[i]);
    }
#pragma unroll
    for (int step = 0; step < 2; ++step) {
      a[8 * block + 4 * step] = w[0][2 * step];
      a[8 * block + 4 * step + 1] = w[1][2 * step];
      a[8 * block + 4 * step + 2] = w[0][2 * step + 1];
      a[8 * block + 4 * step + 3] = w[1][2 * step + 1];
    }
  }
}

// The products of a stage with the rows of x, as one group.
template <int kXRows>
__device__ inline void multiply_stage(uint32_t x_address, const uint32_t (&a)[16], bool accumulate,
                                      float (&c)[kXRows / 2]) {
  wgmma_fence();
#pragma unroll
  for (int step = 0; step < 4; ++step) {
    const uint64_t x = wgmma_descriptor(x_address + static_cast<uint32_t>(step * 32));
    wgmma<false>(c, a + 4 * step, x, step > 0 || accumulate ? 1 : 0);
  }
  wgmma_commit();
}

template <int kXRows>
__device__ inline void store_wgmma(const GemmCall& call, const GemmPlace& place,
                                   const float (&c)[kXRows / 2]) {
  constexpr int kBatch = 8;  // places of rows that travel at a time
  const int lane = static_cast<int>(threadIdx.x) % 32;
  const int row0 = place.w0 + static_cast<int>(threadIdx.x) / 32 * 16 + lane / 4;
  const GemmItem& item = place.item;
#pragma unroll
  for (int first = 0; first < kXRows / 4; first += kBatch) {
    int out[kBatch];
#pragma unroll
    for (int i = 0; i < kBatch; ++i) {
      const int n = first + i;  // column tile n / 2, column n % 2 of the lane's pair
      const int index = min(place.first + n / 2 * 8 + lane % 4 * 2 + n % 2, item.count - 1);
      out[i] = item.out_ids == nullptr ? item.first_out + index : item.out_ids[index];
    }
#pragma unroll
    for (int i = 0; i < kBatch; ++i) {
      const int n = first + i;
      if (place.first + n / 2 * 8 + lane % 4 * 2 + n % 2 >= item.count) continue;
      float* y = item.y + out[i] * call.y_stride;
      if (row0 < call.rows) y[row0] = c[n / 2 * 4 + n % 2];
      if (row0 + 8 < call.rows) y[row0 + 8] = c[n / 2 * 4 + 2 + n % 2];
    }
  }
}

// silu(gate) * up to the hidden rows. Lanes g and g + 4 hold two elements of a word of two rows
// each, and each gets both of one row: four lanes store a chunk.
template <int kXRows>
__device__ inline void store_gated(const GemmCall& call, const GemmPlace& place,
                                   const float (&c)[kXRows / 2]) {
  const int lane = static_cast<int>(threadIdx.x) % 32;
  const int warp = static_cast<int>(threadIdx.x) / 32;
  const bool inside = place.w0 + gated_row(warp * 16 + lane / 4) < call.rows;
  const bool upper = lane >= 16;
  auto* hidden = reinterpret_cast<uint32_t*>(call.hidden) +
                 place.w0 / kTileK * call.hidden_rows * (kTileK / 2) + lane / 4 % 4;
#pragma unroll
  for (int n = 0; n < kXRows / 8; ++n) {
    float value[2];
#pragma unroll
    for (int j = 0; j < 2; ++j) {
      value[j] = inside ? gated_unit(c[4 * n + j], c[4 * n + 2 + j], call.limit) : 0.0f;
    }
    const float other = __shfl_xor_sync(kFullWarp, upper ? value[0] : value[1], 16);
    const uint32_t pair = upper ? pack_bf16(other, value[1]) : pack_bf16(value[0], other);
    const int index = place.first + n * 8 + lane % 4 * 2 + (upper ? 1 : 0);
    if (index >= place.item.count) continue;
    const int row = place.item.first_out + index;
    hidden[row * (kTileK / 2) + ((warp ^ (row % 8)) * 4)] = pair;
  }
}

// An even number: x has zeros past its end.
__device__ inline int wgmma_stages(int cols) {
  return (cols + 2 * kTileK - 1) / (2 * kTileK) * 2;
}

// Stages whose products may still run; their places in the ring are free once they are done.
struct StagesInFlight {
  uint32_t older = 0;  // the barrier that frees it, or none
  uint32_t newer = 0;

  __device__ static void free(uint32_t empty) {
    __syncwarp();  // every lane has read its codes
    if (empty != 0 && threadIdx.x % 32 == 0) barrier_arrive(empty);
  }
};

// One stage: its weights are decoded while the stage before is multiplied.
template <int kBits, int kUnits, bool kOdd>
__device__ inline void multiply_next(const GemmCall& call, const WgmmaScales& scales,
                                     bool accumulate, WgmmaRing<WgmmaStage<kBits, kUnits>>& ring,
                                     StagesInFlight& flight, uint32_t (&a)[16],
                                     float (&c)[kUnits * kWgmmaUnit / 2]) {
  using Stage = WgmmaStage<kBits, kUnits>;
  wgmma_wait<1>();  // the products that read `a` are done
  StagesInFlight::free(flight.older);
  if constexpr (!kOdd) {
    // Both stages at once: ptxas takes no loop between a product and the wait for it.
    ring.wait_full(0);
    ring.wait_full(1);
  }
  decode_operands<Stage, kBits, kOdd>(call, ring.stage(), scales, a);
  multiply_stage<kUnits * kWgmmaUnit>(ring.address(), a, accumulate, c);
  flight.older = flight.newer;
  flight.newer = ring.empty();
  ring.advance();
}

// The sums of one tile, as a multiplying warp sees it. words: of its first two stages.
template <int kBits, int kUnits>
__device__ inline void multiply_tile(const GemmCall& call, const WgmmaScaleRows& rows,
                                     WgmmaScaleWords words,
                                     WgmmaRing<WgmmaStage<kBits, kUnits>>& ring,
                                     float (&c)[kUnits * kWgmmaUnit / 2]) {
  const int stages = wgmma_stages(call.cols);
  WgmmaScales scales{};
  StagesInFlight flight;
  uint32_t even[16];
  uint32_t odd[16];
  for (int stage = 0; stage < stages; stage += 2) {
    if constexpr (kBits != kPlainBits) scales = arrange_scales(call, words);
    if (stage + 2 < stages) load_wgmma_scales<kBits>(call, rows, stage / 2 + 1, words);
    multiply_next<kBits, kUnits, false>(call, scales, stage > 0, ring, flight, even, c);
    multiply_next<kBits, kUnits, true>(call, scales, true, ring, flight, odd, c);
  }
  wgmma_wait<0>();
  StagesInFlight::free(flight.older);
  StagesInFlight::free(flight.newer);
}

// All tiles of a block. What the next tile needs to begin travels while this one is stored.
template <int kBits, int kUnits>
__device__ inline void multiply_tiles(const GemmCall& call, int w_tiles, int tiles,
                                      WgmmaRing<WgmmaStage<kBits, kUnits>>& ring) {
  constexpr int kXRows = kUnits * kWgmmaUnit;
  int tile = static_cast<int>(blockIdx.x);
  GemmPlace place = find_place(call, tile / w_tiles, tile % w_tiles, kXRows);
  WgmmaScaleRows rows = find_scale_rows<kBits>(call, place);
  WgmmaScaleWords first{};
  load_wgmma_scales<kBits>(call, rows, 0, first);
  while (tile < tiles) {
    float c[kXRows / 2];  // written by the first product: zeroing it would serialise wgmma
    multiply_tile<kBits, kUnits>(call, rows, first, ring, c);
    tile += static_cast<int>(gridDim.x);
    const int ahead = min(tile, tiles - 1);
    const GemmPlace next = find_place(call, ahead / w_tiles, ahead % w_tiles, kXRows);
    rows = find_scale_rows<kBits>(call, next);
    load_wgmma_scales<kBits>(call, rows, 0, first);
    if (call.hidden != nullptr) {
      store_gated<kXRows>(call, place, c);
    } else {
      store_wgmma<kXRows>(call, place, c);
    }
    place = next;
  }
}

// Where a loading thread's share of every stage of a tile comes from: pieces of kCopy bytes.
template <typename Stage>
struct CodeSource {
  static constexpr int kChunks = Stage::kRowBytes / Stage::kCopy;
  static constexpr int kEach = kTileW * kChunks / kWgmmaLoaders;
  static_assert(kTileW * kChunks % kWgmmaLoaders == 0);
  const uint8_t* first;  // of the tile's first row: W, or gate
  const uint8_t* first_up;
  uint32_t piece[kEach];  // from there
  uint32_t inside;        // bit i: piece i is of a row of W
  uint32_t is_up;         // bit i: piece i is of up

  __device__ static int row(int thread, int i) { return (thread + i * kWgmmaLoaders) / kChunks; }
  __device__ static int at(int thread, int i) {
    return (thread + i * kWgmmaLoaders) % kChunks * Stage::kCopy;
  }

  __device__ void find(const GemmCall& call, const GemmPlace& place, int thread) {
    const bool gated = place.item.up_codes != nullptr;
    const int first_row = min(place.w0, call.rows - 1);
    first = place.item.codes + first_row * call.code_stride;
    first_up = place.item.up_codes + first_row * call.code_stride;
    inside = 0;
    is_up = 0;
#pragma unroll
    for (int i = 0; i < kEach; ++i) {
      const int in_tile = row(thread, i);
      const int w_row = place.w0 + (gated ? gated_row(in_tile) : in_tile);
      if (w_row < call.rows) inside |= 1u << i;
      if (gated && in_tile % 16 >= 8) is_up |= 1u << i;
      piece[i] = static_cast<uint32_t>(min(w_row, call.rows - 1) - first_row) *
                     static_cast<uint32_t>(call.code_stride) +
                 static_cast<uint32_t>(at(thread, i));
    }
  }

  // left: bytes of a row from this stage on.
  __device__ void issue(int stage, int left, int thread, uint8_t* codes) const {
#pragma unroll
    for (int i = 0; i < kEach; ++i) {
      const int valid = (inside >> i & 1) != 0 ? min(left - at(thread, i), Stage::kCopy) : 0;
      const uint8_t* source = ((is_up >> i & 1) != 0 ? first_up : first) + piece[i] +
                              (valid > 0 ? stage * Stage::kRowBytes : 0);
      uint8_t* target = codes + row(thread, i) * Stage::kPitch + at(thread, i);
      if constexpr (Stage::kCopy == 16) {
        copy_async_16(target, source, max(valid, 0));
      } else {
        copy_async_small<8>(target, source, valid > 0);
      }
    }
  }
};

// One tile, as the loading warps see it.
template <int kBits, int kUnits>
__device__ inline void load_tile(const GemmCall& call, const GemmPlace& place,
                                 WgmmaRing<WgmmaStage<kBits, kUnits>>& ring) {
  using Stage = WgmmaStage<kBits, kUnits>;
  const int thread = static_cast<int>(threadIdx.x) - kWgmmaMultipliers;
  const int stages = wgmma_stages(call.cols);
  const int row_bytes = static_cast<int>(static_cast<int64_t>(call.cols) * kBits / 8);
  const __nv_bfloat16* x = call.x.pieces + (place.item.first_x + place.first) * int64_t{kTileK};
  CodeSource<Stage> source;
  source.find(call, place, thread);
  for (int stage = 0; stage < stages; ++stage) {
    barrier_wait(ring.empty(), ring.parity ^ 1);
    if (thread == 0) {
      barrier_arrive_expecting(ring.full(), Stage::kXBytes);
      copy_bulk(ring.address(), x + stage * call.x.rows * kTileK, Stage::kXBytes, ring.full());
    }
    source.issue(stage, row_bytes - stage * Stage::kRowBytes, thread,
                 ring.stage() + Stage::kXBytes);
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
  ring.first = shared_address(ring.stages);
  ring.barriers = shared_address(barriers);
  // Opaque, so that no stage computes them again.
  asm volatile("" : "+r"(ring.first), "+r"(ring.barriers));
  if (threadIdx.x == 0) {
    for (int i = 0; i < Stage::kDepth; ++i) {
      // Full: every loading thread's copies and the bulk copy. Empty: every multiplying warp.
      barrier_init(ring.barriers + static_cast<uint32_t>(i) * 16, kWgmmaLoaders + 1);
      barrier_init(ring.barriers + static_cast<uint32_t>(i) * 16 + 8, kWgmmaMultipliers / 32);
    }
    barrier_init_done();
  }
  __syncthreads();
  const int w_tiles = call.w_tiles;
  const int tiles = call.x_tiles * w_tiles;
  if (threadIdx.x >= kWgmmaMultipliers) {
    give_registers<72>();
    for (int tile = static_cast<int>(blockIdx.x); tile < tiles;
         tile += static_cast<int>(gridDim.x)) {
      load_tile<kBits, kUnits>(call, find_place(call, tile / w_tiles, tile % w_tiles, kXRows),
                               ring);
    }
  } else {
    take_registers<216>();
    multiply_tiles<kBits, kUnits>(call, w_tiles, tiles, ring);
  }
#endif
}

}  // namespace motley::cuda
