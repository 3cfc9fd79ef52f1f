// Block-scaled floats: w[i, j] = element[i, j] * scale[i / block_rows, j / block_cols] * tensor.
//
//   format   element  scale  block      tensor scale
//   fp8      E4M3     F32,   128 x 128  -      DeepSeek, GLM: `weight`, `weight_scale_inv`
//                     BF16   or others         compressed-tensors: `weight`, `weight_scale`
//   nvfp4    E2M1     E4M3   1 x 16     F32    ModelOpt: `weight`, `weight_scale`,
//   `weight_scale_2`;
//                                              compressed-tensors: `weight_packed`, `weight_scale`,
//                                              `weight_global_scale` (the reciprocal); MLX
//   mxfp4    E2M1     E8M0   1 x 32     -      compressed-tensors, ModelOpt, MLX
//   mxfp8    E4M3     E8M0   1 x 32     -      MLX
// The last block of a row or column may be partial. Two E2M1 codes in a byte: the low nibble is the
// even column.
// Sources: NVIDIA Model-Optimizer qtensor/nvfp4_tensor.py and mxfp4_tensor.py; compressed-tensors;
// ml-explore/mlx mlx/ops.cpp; OCP Microscaling Formats (MX) specification 1.0.
// Thread rule: pure functions.
#pragma once

#include <cstdint>
#include <span>

#include "base/check.h"
#include "numeric/small_float.h"

namespace motley {

struct BlockFloatFormat {
  enum class Element : uint8_t { kE4M3, kE2M1 };
  enum class Scale : uint8_t { kF32, kBf16, kE4M3, kE8M0 };
  Element element = Element::kE2M1;
  Scale scale = Scale::kE4M3;
  int64_t block_rows = 1;
  int64_t block_cols = 16;

  int64_t row_bytes(int64_t cols) const { return element == Element::kE2M1 ? cols / 2 : cols; }
  int64_t scale_bytes() const { return scale == Scale::kF32 ? 4 : scale == Scale::kBf16 ? 2 : 1; }
  // Blocks along a row, and down the rows.
  int64_t blocks(int64_t cols) const { return (cols + block_cols - 1) / block_cols; }
  int64_t block_lines(int64_t rows) const { return (rows + block_rows - 1) / block_rows; }
  friend bool operator==(const BlockFloatFormat&, const BlockFloatFormat&) = default;
};

inline constexpr BlockFloatFormat kFp8Block = {BlockFloatFormat::Element::kE4M3,
                                               BlockFloatFormat::Scale::kF32, 128, 128};
inline constexpr BlockFloatFormat kNvfp4Block = {BlockFloatFormat::Element::kE2M1,
                                                 BlockFloatFormat::Scale::kE4M3, 1, 16};
inline constexpr BlockFloatFormat kMxfp4Block = {BlockFloatFormat::Element::kE2M1,
                                                 BlockFloatFormat::Scale::kE8M0, 1, 32};
inline constexpr BlockFloatFormat kMxfp8Block = {BlockFloatFormat::Element::kE4M3,
                                                 BlockFloatFormat::Scale::kE8M0, 1, 32};

// Element `index` of a packed row, without its scale.
float block_float_element(BlockFloatFormat::Element element, const uint8_t* row, int64_t index);
// Scale `index` of a row of scales; read from any address.
float block_float_scale(BlockFloatFormat::Scale scale, const uint8_t* scales, int64_t index);

// The first scale that is NaN, infinite, zero or negative; -1 if all are usable.
int64_t find_bad_scale(BlockFloatFormat::Scale scale, std::span<const uint8_t> scales);

// The scale that a writer gives a block whose largest magnitude is `amax` (finite, >= 0).
//   fp8    amax / 448
//   nvfp4  amax / 6 / tensor in E4M3, at least 2^-9; a block of zeros has 1 before the division
//   mxfp4  2^ceil(log2(amax / 6)), mxfp8 2^ceil(log2(amax / 448)), at least 2^-127
// An all-zero fp8 block has 1.
float fp8_block_scale(float amax);
float nvfp4_tensor_scale(float amax);
E4M3 nvfp4_block_scale(float amax, float tensor_scale);
E8M0 mx_block_scale(float amax, BlockFloatFormat::Element element);

// Codes of `values`, which are divided by `scale` (> 0) first; even columns in low nibbles. `out`
// holds one byte a value, or half as many for E2M1, whose values must be even in number.
void block_float_encode(BlockFloatFormat::Element element, std::span<const float> values,
                        float scale, uint8_t* out);

}  // namespace motley
