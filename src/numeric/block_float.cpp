#include "numeric/block_float.h"

#include <algorithm>
#include <cmath>
#include <cstring>

#include "numeric/half.h"

namespace motley {
namespace {

constexpr float kLargestE2M1 = 6.0f;
constexpr float kLargestE4M3 = 448.0f;

}  // namespace

float block_float_element(BlockFloatFormat::Element element, const uint8_t* row, int64_t index) {
  if (element == BlockFloatFormat::Element::kE4M3) return to_float(E4M3{row[index]});
  const uint8_t pair = row[index / 2];
  return to_float(E2M1{static_cast<uint8_t>(index % 2 == 0 ? pair & 15 : pair >> 4)});
}

float block_float_scale(BlockFloatFormat::Scale scale, const uint8_t* scales, int64_t index) {
  if (scale == BlockFloatFormat::Scale::kE4M3) return to_float(E4M3{scales[index]});
  if (scale == BlockFloatFormat::Scale::kE8M0) return to_float(E8M0{scales[index]});
  if (scale == BlockFloatFormat::Scale::kBf16) {
    Bf16 half;
    std::memcpy(&half, scales + 2 * index, sizeof(half));
    return to_float(half);
  }
  float value;
  std::memcpy(&value, scales + 4 * index, sizeof(value));
  return value;
}

namespace {

// Most scales have one byte and there are many of them: a loop without an early end is quick.
bool bytes_are_usable(BlockFloatFormat::Scale scale, std::span<const uint8_t> scales) {
  const bool e4m3 = scale == BlockFloatFormat::Scale::kE4M3;
  const uint8_t first = e4m3 ? 1 : 0;
  const uint8_t most = e4m3 ? 0x7E - 1 : 0xFE;
  unsigned bad = 0;
  for (const uint8_t code : scales) bad |= static_cast<uint8_t>(code - first) > most ? 1u : 0u;
  return bad == 0;
}

}  // namespace

int64_t find_bad_scale(BlockFloatFormat::Scale scale, std::span<const uint8_t> scales) {
  const int64_t bytes = BlockFloatFormat{.scale = scale}.scale_bytes();
  if (bytes == 1 && bytes_are_usable(scale, scales)) return -1;
  const int64_t count = static_cast<int64_t>(scales.size()) / bytes;
  for (int64_t i = 0; i < count; ++i) {
    const float value = block_float_scale(scale, scales.data(), i);
    if (!std::isfinite(value) || value <= 0) return i;
  }
  return -1;
}

float fp8_block_scale(float amax) {
  const float scale = amax / kLargestE4M3;
  return scale > 0 ? scale : 1.0f;
}

float nvfp4_tensor_scale(float amax) {
  const float scale = amax / (kLargestE2M1 * kLargestE4M3);
  return scale > 0 ? scale : 1.0f;
}

E4M3 nvfp4_block_scale(float amax, float tensor_scale) {
  const float scale = amax == 0 ? 1.0f : amax / kLargestE2M1 / tensor_scale;
  return to_e4m3(std::clamp(scale, 0x1p-9f, kLargestE4M3));
}

E8M0 mx_block_scale(float amax, BlockFloatFormat::Element element) {
  return to_e8m0_up(amax /
                    (element == BlockFloatFormat::Element::kE2M1 ? kLargestE2M1 : kLargestE4M3));
}

void block_float_encode(BlockFloatFormat::Element element, std::span<const float> values,
                        float scale, uint8_t* out) {
  if (element == BlockFloatFormat::Element::kE4M3) {
    for (const float value : values) *out++ = to_e4m3(value / scale).bits;
    return;
  }
  MOTLEY_CHECK(values.size() % 2 == 0, "E2M1 codes come in pairs");
  for (size_t i = 0; i < values.size(); i += 2) {
    const uint8_t low = to_e2m1(values[i] / scale).bits;
    const uint8_t high = to_e2m1(values[i + 1] / scale).bits;
    *out++ = static_cast<uint8_t>(low | (high << 4));
  }
}

}  // namespace motley
