// MLX affine quantisation: w = scale * q + bias, q unsigned with 2, 3, 4, 5, 6 or 8 bits.
//
// Element j of a row occupies bits [j*b, (j+1)*b) of the row's byte stream, least significant bit
// first. Scales and biases are BF16, F16 or F32, one pair per group of 32, 64 or 128 elements along
// the contraction dimension. Source: ml-explore/mlx mlx/ops.cpp, mlx/backend/cpu/quantized.cpp.
#pragma once

#include <cstdint>
#include <span>

namespace motley {

struct MlxAffineFormat {
  int bits = 4;
  int group_size = 64;

  bool is_valid() const;
  int64_t row_bytes(int64_t cols) const { return cols * bits / 8; }
  int64_t groups(int64_t cols) const { return cols / group_size; }
  friend bool operator==(const MlxAffineFormat&, const MlxAffineFormat&) = default;
};

// Code of element `index` in a packed row. The row must hold (index + 1) * bits bits.
uint32_t mlx_code(const uint8_t* row, int bits, int64_t index);

// Quantises one group as MLX's writer does. `codes` receives one value per element; scale and bias
// are returned before rounding to their storage type. The codes are computed from the unrounded
// pair, as the writer does.
struct MlxGroup {
  float scale;
  float bias;
};
MlxGroup mlx_quantize_group(std::span<const float> values, int bits, std::span<uint8_t> codes);

// Packs codes (one per byte) into the bit stream. codes.size() * bits must be a multiple of 8.
void mlx_pack_codes(std::span<const uint8_t> codes, int bits, uint8_t* out);

}  // namespace motley
