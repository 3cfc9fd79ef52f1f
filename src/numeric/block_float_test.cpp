#include "numeric/block_float.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <random>
#include <vector>

namespace motley {
namespace {

using Element = BlockFloatFormat::Element;
using Scale = BlockFloatFormat::Scale;

TEST(BlockFloat, SizesOfRowsAndBlocks) {
  EXPECT_EQ(kNvfp4Block.row_bytes(64), 32);
  EXPECT_EQ(kMxfp8Block.row_bytes(64), 64);
  EXPECT_EQ(kFp8Block.blocks(129), 2);
  EXPECT_EQ(kFp8Block.block_lines(576), 5);  // kv_a: the last block is half a block
  EXPECT_EQ(kNvfp4Block.block_lines(576), 576);
  EXPECT_EQ(kFp8Block.scale_bytes(), 4);
}

TEST(BlockFloat, TheLowNibbleIsTheEvenColumn) {
  const uint8_t row[] = {0x72, 0xF9};
  EXPECT_EQ(block_float_element(Element::kE2M1, row, 0), 1.0f);
  EXPECT_EQ(block_float_element(Element::kE2M1, row, 1), 6.0f);
  EXPECT_EQ(block_float_element(Element::kE2M1, row, 2), -0.5f);
  EXPECT_EQ(block_float_element(Element::kE2M1, row, 3), -6.0f);
}

// Every code under every scale: the product is exact in float32, and encoding it finds the code.
TEST(BlockFloat, EveryCodeUnderEveryScaleRoundTrips) {
  for (const BlockFloatFormat& format : {kNvfp4Block, kMxfp4Block, kMxfp8Block}) {
    const int codes = format.element == Element::kE2M1 ? 16 : 256;
    for (int s = 0; s < 256; ++s) {
      const auto scale_code = static_cast<uint8_t>(s);
      const float scale = block_float_scale(format.scale, &scale_code, 0);
      if (!std::isfinite(scale) || scale <= 0) continue;
      for (int code = 0; code < codes; ++code) {
        const auto byte = static_cast<uint8_t>(code);
        const float element = block_float_element(format.element, &byte, 0);
        if (std::isnan(element)) continue;
        const float value = element * scale;
        // Beyond float32 a product has no value to come back from; below its normal range the
        // smallest steps of MXFP8 are lost.
        if (!std::isfinite(value)) continue;
        if (double{value} != double{element} * double{scale}) {
          EXPECT_EQ(format, kMxfp8Block);
          EXPECT_LT(std::fabs(double{element} * double{scale}), 0x1p-126);
          continue;
        }
        const float pair[] = {value, 0};
        uint8_t back[2] = {};
        const size_t count = format.element == Element::kE2M1 ? 2 : 1;
        block_float_encode(format.element, std::span(pair, count), scale, back);
        EXPECT_EQ(back[0], code) << "scale " << s;
      }
    }
  }
}

TEST(BlockFloat, UnusableScalesAreFound) {
  for (int s = 0; s < 256; ++s) {
    const uint8_t scales[] = {0x38, static_cast<uint8_t>(s)};
    const bool bad_e4m3 = s == 0 || s == 0x7F || s >= 0x80;
    EXPECT_EQ(find_bad_scale(Scale::kE4M3, scales), bad_e4m3 ? 1 : -1) << s;
    EXPECT_EQ(find_bad_scale(Scale::kE8M0, scales), s == 255 ? 1 : -1) << s;
  }
  const float nan = std::numeric_limits<float>::quiet_NaN();
  const float infinity = std::numeric_limits<float>::infinity();
  for (const float bad : {0.0f, -0.0f, -1.0f, nan, infinity, -infinity}) {
    const float scales[] = {1e-30f, 2.0f, bad};
    uint8_t bytes[sizeof(scales)];
    std::memcpy(bytes, scales, sizeof(scales));
    EXPECT_EQ(find_bad_scale(Scale::kF32, bytes), 2) << bad;
    EXPECT_EQ(find_bad_scale(Scale::kF32, std::span(bytes, 8)), -1);
  }
}

float largest(const std::vector<float>& values) {
  float amax = 0;
  for (const float value : values) amax = std::max(amax, std::fabs(value));
  return amax;
}

float scale_for(const BlockFloatFormat& format, float amax, float tensor_scale) {
  if (format == kFp8Block) return fp8_block_scale(amax);
  if (format == kNvfp4Block) return to_float(nvfp4_block_scale(amax, tensor_scale)) * tensor_scale;
  return to_float(mx_block_scale(amax, format.element));
}

TEST(BlockFloat, BlocksAreWithinHalfAStep) {
  std::mt19937 random(3);
  std::normal_distribution<float> normal;
  for (const BlockFloatFormat& format : {kFp8Block, kNvfp4Block, kMxfp4Block, kMxfp8Block}) {
    for (int round = 0; round < 200; ++round) {
      std::vector<float> values(static_cast<size_t>(format.block_cols));
      const float size = std::exp2(static_cast<float>(round % 40 - 20));
      for (float& value : values) value = normal(random) * size;
      const float amax = largest(values);
      const float tensor_scale = nvfp4_tensor_scale(amax * 3);
      const float scale = scale_for(format, amax, tensor_scale);
      std::vector<uint8_t> codes(static_cast<size_t>(format.row_bytes(format.block_cols)));
      block_float_encode(format.element, values, scale, codes.data());
      for (size_t i = 0; i < values.size(); ++i) {
        const float back =
            block_float_element(format.element, codes.data(), static_cast<int64_t>(i)) * scale;
        // Half the widest step of E2M1 is 1 of 6; E4M3 has 1 in 16 of the value. An E4M3 scale that
        // was rounded down lets the largest value saturate, by 1 in 16.
        const float slack = format.element == Element::kE2M1
                                ? 1.01f * scale
                                : std::fabs(values[i]) / 15 + scale * 0x1p-9f;
        EXPECT_LE(std::fabs(back - values[i]), slack) << round;
      }
    }
  }
}

TEST(BlockFloat, ScalesOfWriters) {
  EXPECT_EQ(fp8_block_scale(448), 1.0f);
  EXPECT_EQ(fp8_block_scale(0), 1.0f);
  EXPECT_EQ(nvfp4_tensor_scale(2688), 1.0f);
  EXPECT_EQ(nvfp4_tensor_scale(0), 1.0f);
  EXPECT_EQ(to_float(nvfp4_block_scale(12, 1)), 2.0f);
  EXPECT_EQ(to_float(nvfp4_block_scale(0, 7)), 1.0f);
  EXPECT_EQ(to_float(nvfp4_block_scale(1e-20f, 1)), 0x1p-9f);
  EXPECT_EQ(to_float(nvfp4_block_scale(1e20f, 1)), 448.0f);
  EXPECT_EQ(to_float(mx_block_scale(6, Element::kE2M1)), 1.0f);
  EXPECT_EQ(to_float(mx_block_scale(6.5f, Element::kE2M1)), 2.0f);
  EXPECT_EQ(to_float(mx_block_scale(448, Element::kE4M3)), 1.0f);
  EXPECT_EQ(to_float(mx_block_scale(0, Element::kE4M3)), 0x1p-127f);
}

}  // namespace
}  // namespace motley
