#include "io/matrix_copy.h"

#include <cstring>

namespace motley {
namespace {

constexpr int64_t kCopyAlignment = 64;

int64_t rows_of(const std::vector<WeightMatrix>& sources) {
  int64_t rows = 0;
  for (const WeightMatrix& source : sources) rows += source.rows;
  return rows;
}

// The format of the copy, without planes.
WeightMatrix format_of_copy(const std::vector<WeightMatrix>& sources) {
  WeightMatrix result = sources.front();
  result.rows = rows_of(sources);
  if (result.format != WeightFormat::kBlockFloat || sources.size() == 1) return result;
  const int64_t block_rows = result.block.block_rows;
  for (const WeightMatrix& source : sources) {
    const bool is_last = &source == &sources.back();
    if (source.first_in_block == 0 && (is_last || source.rows % block_rows == 0)) continue;
    result.block.block_rows = 1;
    result.first_in_block = 0;
  }
  return result;
}

// Copies the rows of one plane and returns where they went; advances `out` past them, aligned.
WeightPlane copy_plane(const std::vector<WeightMatrix>& sources, WeightPlane WeightMatrix::* plane,
                       std::byte** out) {
  const WeightPlane& first = sources.front().*plane;
  if (first.data == nullptr) return first;
  std::byte* const begin = *out;
  std::byte* at = begin;
  for (const WeightMatrix& source : sources) {
    const auto bytes = static_cast<size_t>(source.rows * first.row_bytes);
    std::memcpy(at, (source.*plane).data, bytes);
    at += bytes;
  }
  *out = begin + aligned_copy_bytes(at - begin);
  return {begin, first.row_bytes};
}

WeightPlane copy_block_scales(const std::vector<WeightMatrix>& sources, const WeightMatrix& of_copy,
                              std::byte** out) {
  const int64_t row_bytes = of_copy.scales.row_bytes;
  const auto line_bytes = static_cast<size_t>(row_bytes);
  const bool line_a_row = of_copy.block != sources.front().block;
  std::byte* const begin = *out;
  std::byte* at = begin;
  for (const WeightMatrix& source : sources) {
    if (!line_a_row) {
      const auto bytes = static_cast<size_t>(source.scale_plane_bytes());
      std::memcpy(at, source.scales.data, bytes);
      at += bytes;
      continue;
    }
    for (int64_t row = 0; row < source.rows; ++row, at += row_bytes) {
      std::memcpy(at, source.scale_line(row), line_bytes);
    }
  }
  *out = begin + aligned_copy_bytes(at - begin);
  return {begin, row_bytes};
}

}  // namespace

bool same_format(const WeightMatrix& a, const WeightMatrix& b) {
  return a.format == b.format && a.affine == b.affine && a.scale_dtype == b.scale_dtype &&
         a.block == b.block && a.tensor_scale == b.tensor_scale;
}

bool follows(const WeightMatrix& a, const WeightMatrix& b) {
  if (!same_format(a, b) || a.codes.data + a.rows * a.codes.row_bytes != b.codes.data) return false;
  if (a.format == WeightFormat::kBlockFloat) {
    return a.scale_line(a.rows) == b.scales.data &&
           (a.first_in_block + a.rows) % a.block.block_rows == b.first_in_block;
  }
  return (a.scales.data == nullptr ||
          a.scales.data + a.rows * a.scales.row_bytes == b.scales.data) &&
         (a.biases.data == nullptr || a.biases.data + a.rows * a.biases.row_bytes == b.biases.data);
}

int64_t aligned_copy_bytes(int64_t bytes) {
  return (bytes + kCopyAlignment - 1) / kCopyAlignment * kCopyAlignment;
}

int64_t copied_matrix_bytes(const std::vector<WeightMatrix>& sources) {
  const WeightMatrix whole = format_of_copy(sources);
  return aligned_copy_bytes(whole.rows * whole.codes.row_bytes) +
         aligned_copy_bytes(whole.scale_plane_bytes()) +
         aligned_copy_bytes(whole.rows * whole.biases.row_bytes);
}

WeightMatrix copy_matrix(const std::vector<WeightMatrix>& sources, std::byte* out) {
  WeightMatrix result = format_of_copy(sources);
  result.codes = copy_plane(sources, &WeightMatrix::codes, &out);
  result.scales = result.format == WeightFormat::kBlockFloat
                      ? copy_block_scales(sources, result, &out)
                      : copy_plane(sources, &WeightMatrix::scales, &out);
  result.biases = copy_plane(sources, &WeightMatrix::biases, &out);
  return result;
}

}  // namespace motley
