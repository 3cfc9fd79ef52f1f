#include "numeric/mlx_affine.h"

#include <gtest/gtest.h>

#include <cmath>
#include <random>
#include <vector>

namespace motley {
namespace {

TEST(MlxAffine, PackedCodesReadBack) {
  std::mt19937 random(1);
  for (const int bits : {2, 3, 4, 5, 6, 8}) {
    std::vector<uint8_t> codes(128);
    for (uint8_t& code : codes) code = static_cast<uint8_t>(random() % (1u << bits));
    std::vector<uint8_t> packed(codes.size() * static_cast<size_t>(bits) / 8);
    mlx_pack_codes(codes, bits, packed.data());
    for (size_t i = 0; i < codes.size(); ++i) {
      ASSERT_EQ(mlx_code(packed.data(), bits, static_cast<int64_t>(i)), codes[i]) << bits;
    }
  }
}

TEST(MlxAffine, FieldsOfAWordAreInOrder) {
  // For 4 bits the stream equals fields inside each little-endian word.
  const uint32_t word = 0x76543210u;
  const auto* bytes = reinterpret_cast<const uint8_t*>(&word);
  for (uint32_t i = 0; i < 8; ++i) EXPECT_EQ(mlx_code(bytes, 4, i), i);
}

TEST(MlxAffine, GroupErrorIsHalfAStep) {
  std::mt19937 random(2);
  std::normal_distribution<float> normal;
  for (const int bits : {2, 3, 4, 5, 6, 8}) {
    std::vector<float> values(64);
    for (float& value : values) value = normal(random);
    std::vector<uint8_t> codes(values.size());
    const MlxGroup group = mlx_quantize_group(values, bits, codes);
    for (size_t i = 0; i < values.size(); ++i) {
      const float back = group.scale * static_cast<float>(codes[i]) + group.bias;
      // The zero point is moved onto a code, so the far edge may lose up to one step.
      EXPECT_LE(std::fabs(back - values[i]), std::fabs(group.scale) * 1.01f) << bits;
    }
  }
}

TEST(MlxAffine, WriterKeepsTheLargerEdgeExact) {
  const std::vector<float> values = {-1.0f, 0.25f, 0.5f, 3.0f};
  std::vector<uint8_t> codes(values.size());
  const MlxGroup group = mlx_quantize_group(values, 4, codes);
  EXPECT_LT(group.scale, 0.0f);
  EXPECT_EQ(group.bias, 3.0f);
  EXPECT_EQ(codes[3], 0);
}

TEST(MlxAffine, ConstantGroupsSurvive) {
  for (const float constant : {0.0f, 2.5f, -7.0f}) {
    const std::vector<float> values(32, constant);
    std::vector<uint8_t> codes(values.size());
    const MlxGroup group = mlx_quantize_group(values, 4, codes);
    for (const uint8_t code : codes) {
      EXPECT_NEAR(group.scale * static_cast<float>(code) + group.bias, constant, 1e-5f);
    }
  }
}

TEST(MlxAffine, ValidFormats) {
  EXPECT_TRUE((MlxAffineFormat{4, 64}.is_valid()));
  EXPECT_FALSE((MlxAffineFormat{7, 64}.is_valid()));
  EXPECT_FALSE((MlxAffineFormat{4, 48}.is_valid()));
  EXPECT_EQ((MlxAffineFormat{3, 32}.row_bytes(64)), 24);
}

}  // namespace
}  // namespace motley
