// The kernels behind the matrix products: one table per instruction set, plain data in and out.
//
// Arithmetic of MLX affine weights, the same on every instruction set and for any tiling
// (docs/decisions/0010-integer-limbs.md). A group of a row of x becomes integers X with one power
// of two: x ~ X * 2^-k, |X| < 2^(8 * limbs - 1). X is split into signed bytes (limbs), so the sum
// over a group of code * X is an exact integer S. With s the group's scale, b its bias:
//   lane[g % 16] = fma(float(S), s * 2^-k, lane[g % 16]);
//   lane[g % 16] = fma(b, float(sum X) * 2^-k, lane[g % 16])      for ascending groups g
//   y = ((0 + lane[0]) + lane[1]) + ... + lane[15]
// float(S): one limb a0; two limbs 256 a1 + a0, an exact int32, rounded once; three limbs
// fma(float(256 a2 + a1), 256, float(a0)). A group that holds NaN or infinity gets 2^-k = NaN.
//
// E2M1 weights (NVFP4, MXFP4) are the same with signed codes, twice the value of each: S is the sum
// of code * X, there is no bias, and y is multiplied by half the scale of the tensor in the end.
// Groups are blocks, of 16 or 32.
//
// bfloat16 tiles: where LinearKernels::bfloat16_tiles is set, prefill rows of the fast profile meet
// 4-bit codes in groups of 64 or 128 as w = bfloat16(fma(s, q, b)) and bfloat16(x), both rounded to
// nearest even. y is a float32 sum over steps of 32 columns in ascending order, each step the sum
// of two chains of 16 products (the steps' columns: PackedLayout).
//
// Float weights: lane[k % 16] = fma(w, x, lane[k % 16]) for ascending k, the lanes summed as above.
// E4M3 weights (FP8): such lanes for the columns of each block; then, s being its scale,
//   total[i] = fma(lane[i], s, total[i])      for ascending blocks
// and the totals are summed. w is taken as w * 2^-8 and s as s * 2^8: so it comes out of a half.
// The two codes for NaN count as 480 and -480. Past the last column lanes go on with zeros.
//
// Thread rule: kernels have no state; concurrent calls need different scratch and outputs.
// Files of one instruction set include only this header and intrinsics (no inline functions that
// another file could end up calling).
#pragma once

#include <cstddef>
#include <cstdint>

namespace motley {

enum class ScalarFormat : uint8_t { kBf16, kF16, kF32, kE4M3, kE8M0 };

static inline int64_t scalar_bytes(ScalarFormat format) {
  return format == ScalarFormat::kF32                                    ? 4
         : format == ScalarFormat::kBf16 || format == ScalarFormat::kF16 ? 2
                                                                         : 1;
}

// MLX affine or E2M1 weights, some rows of a matrix. Strides in bytes; no alignment.
struct AffineRows {
  const uint8_t* codes = nullptr;
  const uint8_t* scales = nullptr;
  const uint8_t* biases = nullptr;
  int64_t codes_stride = 0;
  int64_t scales_stride = 0;
  int64_t biases_stride = 0;
  int64_t rows = 0;
  int64_t cols = 0;
  int32_t bits = 4;
  int32_t group_size = 64;
  ScalarFormat scale_format = ScalarFormat::kBf16;
  const uint8_t* next = nullptr;  // codes that the thread will probably read after these
  float multiplier = 1.0f;        // of y; E2M1 only
};

struct FloatRows {
  const uint8_t* data = nullptr;
  int64_t stride = 0;  // bytes
  int64_t rows = 0;
  int64_t cols = 0;
  ScalarFormat format = ScalarFormat::kBf16;  // not kE8M0
  // kE4M3 only: the scale of row n and column k is element k / block_cols (a multiple of 16, or no
  // less than cols) of line (first_in_block + n) / block_rows.
  const uint8_t* scales = nullptr;
  int64_t scales_stride = 0;
  ScalarFormat scale_format = ScalarFormat::kF32;
  int64_t block_rows = 1;
  int64_t block_cols = 128;
  int64_t first_in_block = 0;
};
static inline const uint8_t* scale_line(const FloatRows& weights, int64_t n) {
  return weights.scales + (weights.first_in_block + n) / weights.block_rows * weights.scales_stride;
}

// How a quantised row of x lies in memory.
//   limbs:  for each block of 128 elements, for each limb (lowest first), 128 bytes: half 0 of 16
//           lanes of 4 bytes, then half 1. Element e of the block belongs to lane e / 8. Its place
//           r = e % 8: plain order half r / 4, byte r % 4; nibble order (4-bit codes) half r % 2,
//           byte r / 2. Elements beyond cols are 0.
//   scales: float 2^-k per group, sums: float(sum X) * 2^-k per group; padded with 0 to a multiple
//           of 16 groups. With e2m1 set, sums are int32 instead, 12 times the sum of X, for who
//           adds 12 to each code to make it unsigned: of three limbs first the sum of 256 x2 + x1,
//           then, as many padded groups further on, that of x0.
// With bf16 set there are no limbs and scales: for each block of 128 elements 4 steps of 64 bytes;
// step j holds elements j, 4 + j, 8 + j, ... of the block as bfloat16.
struct PackedLayout {
  int64_t cols = 0;
  int64_t groups = 0;
  int64_t blocks = 0;
  int64_t scales_offset = 0;  // bytes from the start of the row
  int64_t sums_offset = 0;
  int64_t row_bytes = 0;  // a multiple of 64
  int32_t group_size = 64;
  int32_t limbs = 3;
  bool nibble_order = true;
  bool bf16 = false;
  bool e2m1 = false;
};

constexpr int64_t kPackedBlock = 128;
constexpr int64_t kPackedLanes = 16;

// Rows of x and of y by pointer, so that an expert's rows need no copy.
struct PackedTokens {
  const std::byte* const* x = nullptr;  // 64-byte aligned packed rows
  float* const* y = nullptr;            // output n of token t goes to y[t][y_offset + n]
  int64_t y_offset = 0;
  int64_t count = 0;
  const std::byte* tiles = nullptr;  // the same rows as build_tiles lays them out
};
struct FloatTokens {
  const float* const* x = nullptr;
  float* const* y = nullptr;
  int64_t y_offset = 0;
  int64_t count = 0;
};

struct LinearKernels {
  // Quantises groups [first, first + count) of a row: x points to the first of them.
  void (*pack_groups)(const PackedLayout& layout, const float* x, int64_t first, int64_t count,
                      std::byte* row) = nullptr;
  void (*affine_rows)(const AffineRows& weights, const PackedLayout& layout,
                      const PackedTokens& tokens, std::byte* scratch) = nullptr;
  // `fast` allows x to be rounded to bfloat16 where that is quicker.
  void (*float_rows)(const FloatRows& weights, const FloatTokens& tokens, bool fast,
                     std::byte* scratch) = nullptr;
  // inout[i] = silu(min(inout[i], limit)) * clamp(up[i], -limit, limit).
  void (*silu_multiply)(float* inout, const float* up, int64_t count, float limit) = nullptr;
  // Bytes of 64-byte aligned scratch for weights of `cols` columns.
  int64_t (*scratch_bytes)(int64_t cols) = nullptr;

  // Sets with a tile unit: x in the order of that unit, built once for all weights that it meets.
  // Bytes that build_tiles writes for so many rows; 0: affine_rows takes such rows without tiles.
  int64_t (*tile_bytes)(const PackedLayout& layout, int64_t count) = nullptr;
  void (*build_tiles)(const PackedLayout& layout, const std::byte* const* x, int64_t count,
                      std::byte* tiles) = nullptr;
  bool bfloat16_tiles = false;
};

// Tokens of a tile: build_tiles lays out one piece of so many after the other.
constexpr int64_t kTileTokens = 16;

LinearKernels linear_kernels_portable();
LinearKernels linear_kernels_avx2();
LinearKernels linear_kernels_avx512();
LinearKernels linear_kernels_amx();
LinearKernels linear_kernels_neon();
// The AMX path with an emulated tile unit, for tests; needs AVX-512.
LinearKernels linear_kernels_tiles_emulated();

}  // namespace motley
