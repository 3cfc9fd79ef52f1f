#include "numeric/gguf_block.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <limits>
#include <random>
#include <utility>
#include <vector>

#include "numeric/half.h"

namespace motley {
namespace {

constexpr GgufType kTypes[] = {GgufType::kQ4_0, GgufType::kQ8_0, GgufType::kQ4K, GgufType::kQ5K,
                               GgufType::kQ6K};

void put_half(std::vector<uint8_t>* block, size_t at, float value) {
  const F16 half = to_f16(value);
  std::memcpy(block->data() + at, &half, sizeof(half));
}

// The block of scripts/lib/gguf_blocks.py: bytes that no symmetry hides.
std::vector<uint8_t> sample(GgufType type) {
  std::vector<uint8_t> block(static_cast<size_t>(gguf_facts(type).bytes));
  for (uint32_t i = 0; i < block.size(); ++i) {
    block[i] = static_cast<uint8_t>((i * i * 31 + i * 73 + 41) >> 2);
  }
  put_half(&block, type == GgufType::kQ6K ? 208 : 0, 0.0625f);
  if (type == GgufType::kQ4K || type == GgufType::kQ5K) put_half(&block, 2, 0.03125f);
  return block;
}

struct Expected {
  GgufType type;
  double weighted;  // sum of value i * (i + 1)
  std::vector<std::pair<size_t, double>> values;
};

// Printed by scripts/lib/gguf_blocks.py, which decodes in exact rational arithmetic, written from
// the description of the layouts.
const std::vector<Expected>& expected() {
  static const std::vector<Expected> kExpected = {
      {GgufType::kQ4_0, -26.0625, {{0, 0.3125}, {1, -0.125}, {15, -0.5}, {16, -0.25}, {31, -0.5}}},
      {GgufType::kQ8_0, 459.5, {{0, 4.8125}, {1, -7.625}, {15, 0.0}, {16, 2.0625}, {31, 5.75}}},
      {GgufType::kQ4K,
       314834.5,
       {{0, 12.75},
        {31, 2.4375},
        {32, 33.0625},
        {77, 7.65625},
        {100, 0.9375},
        {128, 41.75},
        {191, 4.65625},
        {255, 1.8125}}},
      {GgufType::kQ5K,
       714481.25,
       {{0, 5.25},
        {31, 24.9375},
        {32, 45.25},
        {77, 0.65625},
        {100, 1.25},
        {128, 17.25},
        {191, 1.21875},
        {255, 5.9375}}},
      {GgufType::kQ6K,
       87592.375,
       {{0, -43.75},
        {31, 166.75},
        {32, 7.625},
        {77, -1.0625},
        {100, -3.625},
        {128, 37.5},
        {191, 23.25},
        {255, 8.4375}}},
  };
  return kExpected;
}

TEST(GgufBlock, ValuesAreThoseOfAnIndependentProgram) {
  for (const Expected& want : expected()) {
    const std::vector<uint8_t> block = sample(want.type);
    std::vector<float> floats(static_cast<size_t>(gguf_facts(want.type).values));
    std::vector<double> doubles(floats.size());
    gguf_decode(want.type, block.data(), floats.data());
    gguf_decode(want.type, block.data(), doubles.data());
    double weighted = 0;
    for (size_t i = 0; i < floats.size(); ++i) {
      ASSERT_EQ(static_cast<double>(floats[i]), doubles[i]);  // these need no rounding
      weighted += doubles[i] * static_cast<double>(i + 1);
    }
    EXPECT_EQ(weighted, want.weighted) << gguf_facts(want.type).name;
    for (const auto& [at, value] : want.values) {
      EXPECT_EQ(doubles[at], value) << gguf_facts(want.type).name << " " << at;
    }
  }
}

TEST(GgufBlock, GroupsHoldNoMoreThanTheirBits) {
  std::mt19937 random(1);
  for (const GgufType type : kTypes) {
    const GgufBlockFacts& facts = gguf_facts(type);
    std::vector<uint8_t> block(static_cast<size_t>(facts.bytes));
    for (int round = 0; round < 50; ++round) {
      for (uint8_t& byte : block) byte = static_cast<uint8_t>(random());
      GgufGroups groups;
      gguf_unpack(type, block.data(), &groups);
      for (int64_t i = 0; i < facts.values; ++i) {
        ASSERT_LT(groups.codes[i], 1 << facts.code_bits) << facts.name;
      }
    }
  }
}

// float32 holds the products of scales: the float64 value rounds to the float32 one.
TEST(GgufBlock, FloatValuesAreTheRoundedExactOnes) {
  std::mt19937 random(2);
  for (const GgufType type : kTypes) {
    const GgufBlockFacts& facts = gguf_facts(type);
    std::vector<uint8_t> block(static_cast<size_t>(facts.bytes));
    std::vector<float> floats(static_cast<size_t>(facts.values));
    std::vector<double> doubles(floats.size());
    for (int round = 0; round < 50; ++round) {
      for (uint8_t& byte : block) byte = static_cast<uint8_t>(random());
      if (find_bad_gguf_block(type, block.data(), 1) == 0) continue;
      gguf_decode(type, block.data(), floats.data());
      gguf_decode(type, block.data(), doubles.data());
      for (size_t i = 0; i < floats.size(); ++i) {
        ASSERT_EQ(floats[i], static_cast<float>(doubles[i])) << facts.name;
      }
    }
  }
}

TEST(GgufBlock, EncodedValuesComeBackWithinHalfAStepOrTwo) {
  std::mt19937 random(3);
  std::normal_distribution<float> normal;
  for (const GgufType type : kTypes) {
    const GgufBlockFacts& facts = gguf_facts(type);
    std::vector<float> values(static_cast<size_t>(facts.values));
    for (float& value : values) value = normal(random);
    std::vector<uint8_t> block(static_cast<size_t>(facts.bytes));
    gguf_encode(type, values, block.data());
    std::vector<float> back(values.size());
    gguf_decode(type, block.data(), back.data());
    GgufGroups groups;
    gguf_unpack(type, block.data(), &groups);
    for (size_t i = 0; i < values.size(); ++i) {
      const float step = std::fabs(groups.scales[i / static_cast<size_t>(facts.group_size)]);
      EXPECT_LE(std::fabs(back[i] - values[i]), 1.6f * step) << facts.name << " " << i;
    }
  }
}

// A field written where it is not read would show as values that have nothing to do with the first.
TEST(GgufBlock, EncodingWhatWasDecodedChangesLittle) {
  std::mt19937 random(4);
  std::normal_distribution<float> normal;
  for (const GgufType type : kTypes) {
    const GgufBlockFacts& facts = gguf_facts(type);
    for (int round = 0; round < 20; ++round) {
      std::vector<float> values(static_cast<size_t>(facts.values));
      for (float& value : values) value = normal(random);
      std::vector<uint8_t> block(static_cast<size_t>(facts.bytes));
      gguf_encode(type, values, block.data());
      std::vector<float> once(values.size());
      gguf_decode(type, block.data(), once.data());
      gguf_encode(type, once, block.data());
      std::vector<float> twice(values.size());
      gguf_decode(type, block.data(), twice.data());
      double worst = 0;
      double largest = 0;
      for (size_t i = 0; i < once.size(); ++i) {
        worst = std::max(worst, std::fabs(static_cast<double>(once[i]) - twice[i]));
        largest = std::max(largest, std::fabs(static_cast<double>(once[i])));
      }
      EXPECT_LE(worst, 0.15 * largest) << facts.name;
    }
  }
}

TEST(GgufBlock, ZeroAndConstantBlocksSurvive) {
  for (const GgufType type : kTypes) {
    const GgufBlockFacts& facts = gguf_facts(type);
    for (const float constant : {0.0f, 2.5f, -7.0f}) {
      const std::vector<float> values(static_cast<size_t>(facts.values), constant);
      std::vector<uint8_t> block(static_cast<size_t>(facts.bytes));
      gguf_encode(type, values, block.data());
      std::vector<float> back(values.size());
      gguf_decode(type, block.data(), back.data());
      for (const float value : back) EXPECT_NEAR(value, constant, 0.01f) << facts.name;
    }
  }
}

TEST(GgufBlock, ScalesThatAreNoNumbersAreFound) {
  for (const GgufType type : kTypes) {
    const auto bytes = static_cast<size_t>(gguf_facts(type).bytes);
    std::vector<uint8_t> blocks;
    for (int i = 0; i < 3; ++i) {
      const std::vector<uint8_t> one = sample(type);
      blocks.insert(blocks.end(), one.begin(), one.end());
    }
    EXPECT_EQ(find_bad_gguf_block(type, blocks.data(), 3), -1);
    const size_t d = bytes + (type == GgufType::kQ6K ? 208 : 0);
    put_half(&blocks, d, std::numeric_limits<float>::quiet_NaN());
    EXPECT_EQ(find_bad_gguf_block(type, blocks.data(), 3), 1);
    put_half(&blocks, d, std::numeric_limits<float>::infinity());
    EXPECT_EQ(find_bad_gguf_block(type, blocks.data(), 3), 1);
    if (type != GgufType::kQ4K && type != GgufType::kQ5K) continue;
    put_half(&blocks, d, 1.0f);
    put_half(&blocks, d + 2, std::numeric_limits<float>::infinity());
    EXPECT_EQ(find_bad_gguf_block(type, blocks.data(), 3), 1);
  }
}

TEST(GgufBlock, NamesAndSizes) {
  for (const GgufType type : kTypes) {
    EXPECT_EQ(gguf_type_from_name(gguf_facts(type).name), type);
    EXPECT_EQ(gguf_facts(type).values % gguf_facts(type).group_size, 0);
  }
  EXPECT_EQ(gguf_type_from_name("IQ2_XS"), std::nullopt);
  EXPECT_EQ(gguf_row_bytes(GgufType::kQ6K, 512), 420);
  EXPECT_EQ(gguf_row_bytes(GgufType::kQ8_0, 64), 68);
}

}  // namespace
}  // namespace motley
