#include "tensor/gguf_weights.h"

#include <gtest/gtest.h>

#include <random>
#include <vector>

namespace motley {
namespace {

constexpr GgufType kTypes[] = {GgufType::kQ4_0, GgufType::kQ8_0, GgufType::kQ4K, GgufType::kQ5K,
                               GgufType::kQ6K};

TEST(GgufWeights, FormatsAndTypesAreOneToOne) {
  for (const GgufType type : kTypes) EXPECT_EQ(gguf_type(weight_format(type)), type);
  for (const WeightFormat format : {WeightFormat::kF32, WeightFormat::kMlxAffine}) {
    EXPECT_EQ(gguf_type(format), std::nullopt);
  }
}

TEST(GgufWeights, RowsDecodeBlockByBlock) {
  std::mt19937 random(5);
  std::normal_distribution<float> normal;
  for (const GgufType type : kTypes) {
    const GgufBlockFacts& facts = gguf_facts(type);
    constexpr int64_t kRows = 3;
    const int64_t cols = 2 * facts.values;
    std::vector<uint8_t> bytes(static_cast<size_t>(kRows * gguf_row_bytes(type, cols)));
    std::vector<float> values(static_cast<size_t>(facts.values));
    for (size_t at = 0; at < bytes.size(); at += static_cast<size_t>(facts.bytes)) {
      for (float& value : values) value = normal(random);
      gguf_encode(type, values, bytes.data() + at);
    }
    const WeightMatrix matrix{
        .format = weight_format(type),
        .rows = kRows,
        .cols = cols,
        .codes = {reinterpret_cast<const std::byte*>(bytes.data()), gguf_row_bytes(type, cols)}};
    EXPECT_EQ(matrix.bytes(), std::ssize(bytes));
    const WeightMatrix last = matrix.slice_rows(2, 1);
    std::vector<float> row(static_cast<size_t>(cols));
    std::vector<double> wide(row.size());
    decode_row(last, 0, row.data());
    decode_row(matrix, 2, wide.data());
    gguf_decode(type, bytes.data() + 5 * facts.bytes, values.data());
    for (size_t i = 0; i < values.size(); ++i) {
      ASSERT_EQ(row[values.size() + i], values[i]) << facts.name;
      ASSERT_EQ(static_cast<float>(wide[values.size() + i]), values[i]) << facts.name;
    }
  }
}

}  // namespace
}  // namespace motley
