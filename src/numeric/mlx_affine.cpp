#include "numeric/mlx_affine.h"

#include <algorithm>
#include <cmath>
#include <cstring>

#include "base/check.h"

namespace motley {

bool MlxAffineFormat::is_valid() const {
  const bool bits_known =
      bits == 2 || bits == 3 || bits == 4 || bits == 5 || bits == 6 || bits == 8;
  const bool group_known = group_size == 32 || group_size == 64 || group_size == 128;
  return bits_known && group_known;
}

uint32_t mlx_code(const uint8_t* row, int bits, int64_t index) {
  const int64_t bit = index * bits;
  const int64_t byte = bit / 8;
  const int shift = static_cast<int>(bit % 8);
  uint32_t word = row[byte];
  if (shift + bits > 8) word |= static_cast<uint32_t>(row[byte + 1]) << 8;
  return (word >> shift) & ((1u << bits) - 1u);
}

MlxGroup mlx_quantize_group(std::span<const float> values, int bits, std::span<uint8_t> codes) {
  MOTLEY_CHECK(!values.empty() && codes.size() == values.size(), "one code per value");
  const auto [low, high] = std::minmax_element(values.begin(), values.end());
  const float levels = static_cast<float>((1 << bits) - 1);
  float scale = std::max((*high - *low) / levels, 1e-7f);
  float edge = *low;
  if (std::fabs(*low) <= std::fabs(*high)) {
    scale = -scale;
    edge = *high;
  }
  const float zero_code = std::rint(edge / scale);
  float bias = 0;
  if (zero_code != 0) {
    scale = edge / zero_code;
    bias = edge;
  }
  for (size_t i = 0; i < values.size(); ++i) {
    const float code = std::rint((values[i] - bias) / scale);
    codes[i] = static_cast<uint8_t>(std::clamp(code, 0.0f, levels));
  }
  return {scale, bias};
}

void mlx_pack_codes(std::span<const uint8_t> codes, int bits, uint8_t* out) {
  const int64_t total_bits = static_cast<int64_t>(codes.size()) * bits;
  MOTLEY_CHECK(total_bits % 8 == 0, "codes must fill whole bytes");
  uint32_t pending = 0;
  int pending_bits = 0;
  for (const uint8_t code : codes) {
    pending |= static_cast<uint32_t>(code) << pending_bits;
    pending_bits += bits;
    while (pending_bits >= 8) {
      *out++ = static_cast<uint8_t>(pending);
      pending >>= 8;
      pending_bits -= 8;
    }
  }
}

}  // namespace motley
