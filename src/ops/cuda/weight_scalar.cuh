// One weight at a time, in every format and at any alignment: for embedding rows and for the
// products that the fast kernels do not take.
#pragma once

#include "ops/cuda/device_math.cuh"
#include "tensor/weight_matrix.h"

namespace motley::cuda {

// The planes of a WeightMatrix, as a kernel argument.
struct ScalarWeights {
  const uint8_t* codes = nullptr;
  const uint8_t* scales = nullptr;
  const uint8_t* biases = nullptr;
  int64_t code_stride = 0;
  int64_t scale_stride = 0;
  int32_t rows = 0;
  int32_t cols = 0;
  WeightFormat format = WeightFormat::kF32;
  DType scale_dtype = DType::kF32;
  int32_t bits = 0;
  int32_t group_size = 1;
};

// The formats that this backend decodes; others are refused by their ops.
inline bool is_scalar_format(const WeightMatrix& weights) {
  return weights.format == WeightFormat::kF32 || weights.format == WeightFormat::kF16 ||
         weights.format == WeightFormat::kBf16 || weights.format == WeightFormat::kMlxAffine;
}

inline ScalarWeights scalar_weights(const WeightMatrix& weights) {
  MOTLEY_CHECK(weights.format != WeightFormat::kBlockFloat,
               "block-scaled floats have no CUDA kernels");
  return {reinterpret_cast<const uint8_t*>(weights.codes.data),
          reinterpret_cast<const uint8_t*>(weights.scales.data),
          reinterpret_cast<const uint8_t*>(weights.biases.data),
          weights.codes.row_bytes,
          weights.scales.row_bytes,
          static_cast<int32_t>(weights.rows),
          static_cast<int32_t>(weights.cols),
          weights.format,
          weights.scale_dtype,
          weights.affine.bits,
          weights.affine.group_size};
}

__device__ inline float load_scalar(const uint8_t* bytes, DType dtype) {
  const uint32_t low = bytes[0] | (uint32_t{bytes[1]} << 8);
  if (dtype == DType::kBf16) return __uint_as_float(low << 16);
  if (dtype == DType::kF16) return __half2float(__ushort_as_half(static_cast<uint16_t>(low)));
  return __uint_as_float(low | (uint32_t{bytes[2]} << 16) | (uint32_t{bytes[3]} << 24));
}

__device__ inline float weight_at(const ScalarWeights& w, int64_t row, int col) {
  const uint8_t* codes = w.codes + row * w.code_stride;
  if (w.format == WeightFormat::kF32) return load_scalar(codes + int64_t{4} * col, DType::kF32);
  if (w.format == WeightFormat::kF16) return load_scalar(codes + int64_t{2} * col, DType::kF16);
  if (w.format == WeightFormat::kBf16) return load_scalar(codes + int64_t{2} * col, DType::kBf16);
  const int64_t bit = int64_t{col} * w.bits;
  uint32_t word = codes[bit / 8];
  if (bit % 8 + w.bits > 8) word |= uint32_t{codes[bit / 8 + 1]} << 8;
  const uint32_t code = (word >> (bit % 8)) & ((1u << w.bits) - 1u);
  const int64_t at = row * w.scale_stride +
                     col / w.group_size * (w.scale_dtype == DType::kF32 ? int64_t{4} : int64_t{2});
  return fmaf(load_scalar(w.scales + at, w.scale_dtype), static_cast<float>(code),
              load_scalar(w.biases + at, w.scale_dtype));
}

// Columns col .. col + 7, col a multiple of 8; zeros past the last one. The scale of an affine row
// is read once, its groups being multiples of 32.
__device__ inline void eight_weights(const ScalarWeights& w, int64_t row, int col,
                                     float (&values)[8]) {
  const bool words = w.format == WeightFormat::kMlxAffine && (w.bits == 4 || w.bits == 8) &&
                     w.group_size % 8 == 0 && col + 8 <= w.cols;
  if (!words) {
#pragma unroll
    for (int i = 0; i < 8; ++i) values[i] = col + i < w.cols ? weight_at(w, row, col + i) : 0.0f;
    return;
  }
  const uint8_t* codes = w.codes + row * w.code_stride + col / 8 * w.bits;
  const int64_t at =
      row * w.scale_stride + col / w.group_size * (w.scale_dtype == DType::kF32 ? 4 : 2);
  const float scale = load_scalar(w.scales + at, w.scale_dtype);
  const float bias = load_scalar(w.biases + at, w.scale_dtype);
#pragma unroll
  for (int i = 0; i < 8; ++i) {
    const uint32_t byte = codes[w.bits == 4 ? i / 2 : i];
    const uint32_t code = w.bits == 4 ? byte >> (i % 2 * 4) & 15u : byte;
    values[i] = fmaf(scale, static_cast<float>(code), bias);
  }
}

}  // namespace motley::cuda
