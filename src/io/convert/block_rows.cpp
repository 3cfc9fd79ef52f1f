#include "io/convert/block_rows.h"

#include <algorithm>
#include <cmath>
#include <cstring>

#include "base/check.h"

namespace motley {
namespace {

// Stores the scale of a block whose largest magnitude is `amax`; returns what a reader sees.
float store_scale(const BlockFloatFormat& format, float tensor_scale, float amax, std::byte* scales,
                  int64_t index) {
  switch (format.scale) {
    case BlockFloatFormat::Scale::kF32: {
      const float scale = fp8_block_scale(amax);
      std::memcpy(scales + 4 * index, &scale, sizeof(scale));
      return scale;
    }
    case BlockFloatFormat::Scale::kE4M3: {
      const E4M3 scale = nvfp4_block_scale(amax, tensor_scale);
      scales[index] = static_cast<std::byte>(scale.bits);
      return to_float(scale);
    }
    case BlockFloatFormat::Scale::kE8M0: {
      const E8M0 scale = mx_block_scale(amax, format.element);
      scales[index] = static_cast<std::byte>(scale.bits);
      return to_float(scale);
    }
    case BlockFloatFormat::Scale::kBf16:
      break;
  }
  MOTLEY_CHECK(false, "scales are written as F32, E4M3 or E8M0");
  return 1.0f;
}

}  // namespace

void store_block_rows(const BlockFloatFormat& format, float tensor_scale,
                      std::span<const float> values, int64_t cols, const PackedRows& out) {
  const int64_t rows = static_cast<int64_t>(values.size()) / cols;
  const int64_t row_bytes = format.row_bytes(cols);
  auto* codes = reinterpret_cast<uint8_t*>(out.values);
  int64_t index = 0;
  for (int64_t first = 0; first < rows; first += format.block_rows) {
    const int64_t end = std::min(rows, first + format.block_rows);
    for (int64_t col = 0; col < cols; col += format.block_cols, ++index) {
      const auto size = static_cast<size_t>(std::min(format.block_cols, cols - col));
      const auto line = [&](int64_t row) {
        return values.subspan(static_cast<size_t>(row * cols + col), size);
      };
      float amax = 0;
      for (int64_t row = first; row < end; ++row) {
        for (const float value : line(row)) amax = std::max(amax, std::fabs(value));
      }
      const float scale = store_scale(format, tensor_scale, amax, out.scales, index);
      for (int64_t row = first; row < end; ++row) {
        block_float_encode(format.element, line(row), scale * tensor_scale,
                           codes + row * row_bytes + format.row_bytes(col));
      }
    }
  }
}

}  // namespace motley
