// A weight matrix [out_features, in_features] in the number format of the checkpoint.
//
// y = W x: each row holds the weights of one output, contiguous along the contraction dimension.
// Rows are stored as up to three planes (codes, scales, biases), each with its own row stride, so
// a range of rows is again a WeightMatrix and weights are used in place, as they lie in the file.
// Blocks of block-scaled floats may span rows: then a line of scales serves several of them.
// Planes need no alignment. Ownership: none; the loader's storage outlives every view.
#pragma once

#include <cstdint>

#include "numeric/block_float.h"
#include "numeric/dtype.h"
#include "numeric/mlx_affine.h"
#include "tensor/tensor_view.h"

namespace motley {

enum class WeightFormat : uint8_t {
  kF32,
  kF16,
  kBf16,
  kMlxAffine,   // planes: codes, scales, biases; see numeric/mlx_affine.h
  kBlockFloat,  // planes: codes, scales; see numeric/block_float.h
};

struct WeightPlane {
  const std::byte* data = nullptr;
  int64_t row_bytes = 0;
};

struct WeightMatrix {
  WeightFormat format = WeightFormat::kF32;
  MemorySpace space = MemorySpace::kHost;
  int64_t rows = 0;  // out_features
  int64_t cols = 0;  // in_features
  WeightPlane codes;
  WeightPlane scales;               // kMlxAffine: [rows, cols / group_size]; kBlockFloat: one
                                    // line for each block of rows
  WeightPlane biases;               // kMlxAffine: as scales
  MlxAffineFormat affine;           // kMlxAffine only
  DType scale_dtype = DType::kF32;  // kMlxAffine: element type of scales and biases
  BlockFloatFormat block;           // kBlockFloat only
  float tensor_scale = 1.0f;        // kBlockFloat: times every value
  int64_t first_in_block = 0;       // kBlockFloat: where row 0 is in its block of rows

  bool is_empty() const { return rows == 0; }
  // Lines of the scales' plane that the rows use, and its bytes.
  int64_t scale_lines() const;
  int64_t scale_plane_bytes() const { return scale_lines() * scales.row_bytes; }
  // The line of row `row`.
  const std::byte* scale_line(int64_t row) const;
  // Bytes of all planes: what one pass over the matrix reads. A line of scales belongs to its first
  // row, so that the bytes of slices add up.
  int64_t bytes() const;
  // Rows [begin, begin + count).
  WeightMatrix slice_rows(int64_t begin, int64_t count) const;
};

// Decodes row `row` to float32: exact but for kMlxAffine, where each value is scale * q + bias,
// product and sum rounded once together (fused), and kBlockFloat, where element * scale is rounded
// (it is exact with scales of 8 bits), and its product with the tensor's scale again.
void decode_row(const WeightMatrix& weights, int64_t row, float* out);
// The same in float64, without rounding of the product and sum.
void decode_row(const WeightMatrix& weights, int64_t row, double* out);

}  // namespace motley
