#include "tensor/weight_matrix.h"

#include <algorithm>
#include <cmath>
#include <cstring>

#include "numeric/half.h"
#include "tensor/gguf_weights.h"

namespace motley {
namespace {

template <typename T>
T load(const std::byte* data, int64_t index) {
  T value;
  std::memcpy(&value, data + index * static_cast<int64_t>(sizeof(T)), sizeof(T));
  return value;
}

float load_scalar(const std::byte* data, DType dtype, int64_t index) {
  switch (dtype) {
    case DType::kBf16:
      return to_float(load<Bf16>(data, index));
    case DType::kF16:
      return to_float(load<F16>(data, index));
    default:
      MOTLEY_CHECK(dtype == DType::kF32, "scales are BF16, F16 or F32");
      return load<float>(data, index);
  }
}

WeightPlane plane_from_row(const WeightPlane& plane, int64_t row) {
  if (plane.data == nullptr) return plane;
  return {plane.data + row * plane.row_bytes, plane.row_bytes};
}

float affine_value(float scale, float code, float bias) {
  return std::fma(scale, code, bias);
}
double affine_value(double scale, double code, double bias) {
  return scale * code + bias;
}

template <typename T>
void decode_affine_row(const WeightMatrix& weights, int64_t row, T* out) {
  const auto* codes =
      reinterpret_cast<const uint8_t*>(weights.codes.data + row * weights.codes.row_bytes);
  const std::byte* scales = weights.scales.data + row * weights.scales.row_bytes;
  const std::byte* biases = weights.biases.data + row * weights.biases.row_bytes;
  const int group_size = weights.affine.group_size;
  for (int64_t group = 0; group < weights.cols / group_size; ++group) {
    const T scale = load_scalar(scales, weights.scale_dtype, group);
    const T bias = load_scalar(biases, weights.scale_dtype, group);
    for (int64_t col = group * group_size; col < (group + 1) * group_size; ++col) {
      const auto code = static_cast<T>(mlx_code(codes, weights.affine.bits, col));
      out[col] = affine_value(scale, code, bias);
    }
  }
}

template <typename T>
void decode_block_row(const WeightMatrix& weights, int64_t row, T* out) {
  const BlockFloatFormat& block = weights.block;
  const auto* codes =
      reinterpret_cast<const uint8_t*>(weights.codes.data + row * weights.codes.row_bytes);
  const auto* scales = reinterpret_cast<const uint8_t*>(weights.scale_line(row));
  const T tensor_scale = weights.tensor_scale;
  for (int64_t i = 0; i < block.blocks(weights.cols); ++i) {
    const T scale = block_float_scale(block.scale, scales, i);
    const int64_t end = std::min(weights.cols, (i + 1) * block.block_cols);
    for (int64_t col = i * block.block_cols; col < end; ++col) {
      const T element = block_float_element(block.element, codes, col);
      out[col] = element * scale * tensor_scale;
    }
  }
}

template <typename T>
void decode_gguf_row(GgufType type, const WeightMatrix& weights, int64_t row, T* out) {
  const GgufBlockFacts& facts = gguf_facts(type);
  const auto* block =
      reinterpret_cast<const uint8_t*>(weights.codes.data + row * weights.codes.row_bytes);
  for (int64_t col = 0; col < weights.cols; col += facts.values, block += facts.bytes) {
    gguf_decode(type, block, out + col);
  }
}

template <typename T>
void decode_any_row(const WeightMatrix& weights, int64_t row, T* out) {
  MOTLEY_CHECK(row >= 0 && row < weights.rows, "row out of range");
  if (weights.format == WeightFormat::kMlxAffine) return decode_affine_row(weights, row, out);
  if (weights.format == WeightFormat::kBlockFloat) return decode_block_row(weights, row, out);
  if (const auto type = gguf_type(weights.format)) {
    return decode_gguf_row(*type, weights, row, out);
  }
  const std::byte* data = weights.codes.data + row * weights.codes.row_bytes;
  const DType dtype = weights.format == WeightFormat::kF32   ? DType::kF32
                      : weights.format == WeightFormat::kF16 ? DType::kF16
                                                             : DType::kBf16;
  for (int64_t col = 0; col < weights.cols; ++col) out[col] = load_scalar(data, dtype, col);
}

}  // namespace

int64_t WeightMatrix::bytes() const {
  int64_t lines = rows;
  if (format == WeightFormat::kBlockFloat) {
    lines = block.block_lines(first_in_block + rows) - block.block_lines(first_in_block);
  }
  return rows * (codes.row_bytes + biases.row_bytes) + lines * scales.row_bytes;
}

int64_t WeightMatrix::scale_lines() const {
  if (format != WeightFormat::kBlockFloat) return rows;
  return rows == 0 ? 0 : block.block_lines(first_in_block + rows);
}

const std::byte* WeightMatrix::scale_line(int64_t row) const {
  if (format != WeightFormat::kBlockFloat) return scales.data + row * scales.row_bytes;
  return scales.data + (first_in_block + row) / block.block_rows * scales.row_bytes;
}

WeightMatrix WeightMatrix::slice_rows(int64_t begin, int64_t count) const {
  MOTLEY_CHECK(begin >= 0 && count >= 0 && begin + count <= rows, "row slice out of range");
  WeightMatrix result = *this;
  result.rows = count;
  result.codes = plane_from_row(codes, begin);
  if (format == WeightFormat::kBlockFloat) {
    if (scales.data != nullptr) result.scales.data = scale_line(begin);
    result.first_in_block = (first_in_block + begin) % block.block_rows;
  } else {
    result.scales = plane_from_row(scales, begin);
  }
  result.biases = plane_from_row(biases, begin);
  return result;
}

void decode_row(const WeightMatrix& weights, int64_t row, float* out) {
  decode_any_row(weights, row, out);
}
void decode_row(const WeightMatrix& weights, int64_t row, double* out) {
  decode_any_row(weights, row, out);
}

}  // namespace motley
