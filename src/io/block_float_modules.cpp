#include "io/block_float_modules.h"

#include <fmt/format.h>

#include <cmath>
#include <cstring>
#include <optional>
#include <vector>

#include "numeric/half.h"

namespace motley {
namespace {

using Scale = BlockFloatFormat::Scale;

Status error(const Checkpoint& checkpoint, const CheckpointTensor& tensor, std::string_view what) {
  return corrupt(fmt::format("{}: tensor '{}': {}", checkpoint.shard(tensor).file().name(),
                             tensor.name, what));
}

Status check_shape(const Checkpoint& checkpoint, const CheckpointTensor& tensor,
                   const std::vector<int64_t>& expected) {
  if (tensor.entry.shape == expected) return Status::ok();
  return error(checkpoint, tensor,
               fmt::format("shape [{}], config.json needs [{}]",
                           fmt::join(tensor.entry.shape, ", "), fmt::join(expected, ", ")));
}

std::vector<int64_t> with_experts(const BlockFloatShape& shape, int64_t rows, int64_t cols) {
  if (shape.experts > 0) return {shape.experts, rows, cols};
  return {rows, cols};
}

std::optional<Scale> scale_type(FloatKind kind, DType dtype) {
  switch (kind) {
    case FloatKind::kFp8:
      if (dtype == DType::kF32) return Scale::kF32;
      if (dtype == DType::kBf16) return Scale::kBf16;
      return std::nullopt;
    case FloatKind::kNvfp4:
      if (dtype == DType::kF8E4M3) return Scale::kE4M3;
      return std::nullopt;
    case FloatKind::kMxfp4:
      if (dtype == DType::kU8 || dtype == DType::kF8E8M0) return Scale::kE8M0;
      return std::nullopt;
  }
  return std::nullopt;
}

std::string_view scale_types(FloatKind kind) {
  return kind == FloatKind::kFp8 ? "F32 or BF16" : kind == FloatKind::kNvfp4 ? "F8_E4M3" : "U8";
}

// Blocks that no row or column ends: as many rows or columns as there can be.
int64_t at_least_one(int64_t size) {
  return size > 0 ? size : 1;
}

// Whether the format alone says how many scales there are. Stacks have no other blocks.
bool has_known_shape(const BlockFloatTensors& names, const BlockFloatShape& shape) {
  return names.kind != FloatKind::kFp8 || names.has_square_blocks || shape.experts > 0;
}

// Blocks of fp8 weights whose scales are called weight_scale: one for the tensor, one a row, or
// one for 128 x 128.
Result<BlockFloatFormat> free_fp8_blocks(const Checkpoint& checkpoint,
                                         const CheckpointTensor& scales,
                                         const BlockFloatShape& shape) {
  BlockFloatFormat format = kFp8Block;
  const std::vector<int64_t>& dims = scales.entry.shape;
  int64_t count = 1;
  for (const int64_t dim : dims) count *= dim;
  if (count == 1 && dims.size() <= 2) {
    format.block_rows = at_least_one(shape.rows);
    format.block_cols = at_least_one(shape.cols);
  } else if (dims == std::vector<int64_t>{shape.rows} ||
             dims == std::vector<int64_t>{shape.rows, 1}) {
    format.block_rows = 1;
    format.block_cols = at_least_one(shape.cols);
  } else if (dims !=
             std::vector<int64_t>{format.block_lines(shape.rows), format.blocks(shape.cols)}) {
    return error(
        checkpoint, scales,
        fmt::format("shape [{}] is neither one scale, nor one a row, nor one for 128 x 128 "
                    "of [{}, {}]",
                    fmt::join(dims, ", "), shape.rows, shape.cols));
  }
  return format;
}

Result<float> read_tensor_scale(const Checkpoint& checkpoint, const BlockFloatTensors& names) {
  const CheckpointTensor& tensor = *checkpoint.find_tensor(names.tensor_scale);
  int64_t count = 1;
  for (const int64_t dim : tensor.entry.shape) count *= dim;
  if (tensor.entry.dtype != DType::kF32 || count != 1) {
    return error(checkpoint, tensor, "must be one F32");
  }
  float stored;
  std::memcpy(&stored, tensor.bytes.data(), sizeof(stored));
  const float value = names.is_reciprocal ? 1.0f / stored : stored;
  if (!std::isfinite(stored) || !std::isfinite(value) || !(value > 0)) {
    return error(checkpoint, tensor,
                 fmt::format("holds {}; a scale must be positive and finite", stored));
  }
  return value;
}

Result<BlockFloatFormat> format_of(const Checkpoint& checkpoint, const BlockFloatTensors& names,
                                   const BlockFloatShape& shape) {
  const CheckpointTensor& scales = *checkpoint.find_tensor(names.scales);
  BlockFloatFormat format = block_float_format(names.kind);
  if (names.kind == FloatKind::kFp8 && !has_known_shape(names, shape)) {
    MOTLEY_ASSIGN_OR_RETURN(format, free_fp8_blocks(checkpoint, scales, shape));
  }
  const std::optional<Scale> scale = scale_type(names.kind, scales.entry.dtype);
  if (!scale) {
    return error(
        checkpoint, scales,
        fmt::format("element type {}, but scales of {} are {}", dtype_name(scales.entry.dtype),
                    float_kind_name(names.kind), scale_types(names.kind)));
  }
  format.scale = *scale;
  if (names.kind != FloatKind::kFp8 && shape.cols % format.block_cols != 0) {
    return error(
        checkpoint, scales,
        fmt::format("{} columns are no whole blocks of {}", shape.cols, format.block_cols));
  }
  return format;
}

}  // namespace

Result<WeightMatrix> bind_block_float(const Checkpoint& checkpoint, const BlockFloatTensors& names,
                                      const BlockFloatShape& shape) {
  const CheckpointTensor& codes = *checkpoint.find_tensor(names.codes);
  const CheckpointTensor& scales = *checkpoint.find_tensor(names.scales);
  MOTLEY_ASSIGN_OR_RETURN(const BlockFloatFormat format, format_of(checkpoint, names, shape));
  const int64_t row_bytes = format.row_bytes(shape.cols);
  MOTLEY_RETURN_IF_ERROR(
      check_shape(checkpoint, codes, with_experts(shape, shape.rows, row_bytes)));
  const int64_t blocks = format.blocks(shape.cols);
  if (has_known_shape(names, shape)) {
    MOTLEY_RETURN_IF_ERROR(check_shape(
        checkpoint, scales, with_experts(shape, format.block_lines(shape.rows), blocks)));
  }
  WeightMatrix matrix{.format = WeightFormat::kBlockFloat,
                      .rows = shape.rows,
                      .cols = shape.cols,
                      .codes = {codes.bytes.data(), row_bytes},
                      .scales = {scales.bytes.data(), blocks * format.scale_bytes()},
                      .block = format};
  if (!names.tensor_scale.empty()) {
    MOTLEY_ASSIGN_OR_RETURN(matrix.tensor_scale, read_tensor_scale(checkpoint, names));
  }
  return matrix;
}

Status check_block_scales(const Checkpoint& checkpoint, const CheckpointTensor& scales,
                          const BlockFloatFormat& format) {
  const auto* data = reinterpret_cast<const uint8_t*>(scales.bytes.data());
  const int64_t bad = find_bad_scale(format.scale, {data, scales.bytes.size()});
  if (bad < 0) return Status::ok();
  return error(checkpoint, scales,
               fmt::format("scale {} is {}; scales must be positive and finite", bad,
                           block_float_scale(format.scale, data, bad)));
}

std::string block_float_name(const BlockFloatFormat& format) {
  const bool fp4 = format.element == BlockFloatFormat::Element::kE2M1;
  if (format.scale == Scale::kE4M3) return "nvfp4";
  if (format.scale == Scale::kE8M0) return fp4 ? "mxfp4" : "mxfp8";
  if (format.block_rows == 128 && format.block_cols == 128) return "fp8 128x128";
  return format.block_rows == 1 ? "fp8 row" : "fp8 tensor";
}

}  // namespace motley
