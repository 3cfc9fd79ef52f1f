#include "io/column_order.h"

#include <gtest/gtest.h>

#include <random>
#include <vector>

#include "base/aligned_buffer.h"
#include "tensor/gguf_weights.h"

namespace motley {
namespace {

struct Blocks {
  std::vector<uint8_t> bytes;
  WeightMatrix view;
};

Blocks random_blocks(GgufType type, int64_t rows, int64_t cols) {
  std::mt19937 random(7);
  std::normal_distribution<float> normal;
  const GgufBlockFacts& facts = gguf_facts(type);
  Blocks blocks{std::vector<uint8_t>(static_cast<size_t>(rows * gguf_row_bytes(type, cols))), {}};
  std::vector<float> values(static_cast<size_t>(facts.values));
  for (size_t at = 0; at < blocks.bytes.size(); at += static_cast<size_t>(facts.bytes)) {
    for (float& value : values) value = normal(random);
    gguf_encode(type, values, blocks.bytes.data() + at);
  }
  blocks.view = {.format = weight_format(type),
                 .rows = rows,
                 .cols = cols,
                 .codes = {reinterpret_cast<const std::byte*>(blocks.bytes.data()),
                           gguf_row_bytes(type, cols)}};
  return blocks;
}

// Head h of the result is head stored(h) of the source, value for value.
void expect_heads_moved(const WeightMatrix& source, const TiledHeads& heads,
                        WeightFormat expected_format) {
  auto buffer = AlignedBuffer::allocate(static_cast<size_t>(untiled_bytes(source, heads)));
  ASSERT_TRUE(buffer.is_ok());
  const WeightMatrix moved = untile_columns(source, heads, buffer->data());
  EXPECT_EQ(moved.format, expected_format);
  std::vector<double> before(static_cast<size_t>(source.cols));
  std::vector<double> after(before.size());
  for (int64_t row = 0; row < source.rows; ++row) {
    decode_row(source, row, before.data());
    decode_row(moved, row, after.data());
    for (int64_t col = 0; col < source.cols; ++col) {
      const int64_t head = col / heads.width;
      const auto from = static_cast<size_t>(heads.stored(head) * heads.width + col % heads.width);
      ASSERT_EQ(after[static_cast<size_t>(col)], before[from]) << row << " " << col;
    }
  }
}

TEST(ColumnOrder, StoredHeadsAreInRoundsOverTheKeyHeads) {
  const TiledHeads heads{.width = 1, .key_heads = 3, .per_key = 2};
  // Of key head 0 the value heads are 0 and 1; stored: heads 0, 2, 4, then 1, 3, 5.
  const std::vector<int64_t> expected = {0, 3, 1, 4, 2, 5};
  for (int64_t head = 0; head < 6; ++head) {
    EXPECT_EQ(heads.stored(head), expected[static_cast<size_t>(head)]);
  }
  EXPECT_TRUE(heads.is_needed());
  EXPECT_FALSE((TiledHeads{.key_heads = 4, .per_key = 1}.is_needed()));
}

TEST(ColumnOrder, BlocksThatFitIntoAHeadAreMovedAsTheyAre) {
  const TiledHeads heads{.width = 64, .key_heads = 2, .per_key = 4};
  for (const GgufType type : {GgufType::kQ4_0, GgufType::kQ8_0}) {
    const Blocks blocks = random_blocks(type, 3, 512);
    expect_heads_moved(blocks.view, heads, weight_format(type));
  }
  const TiledHeads wide{.width = 256, .key_heads = 2, .per_key = 2};
  for (const GgufType type : {GgufType::kQ4K, GgufType::kQ5K, GgufType::kQ6K}) {
    const Blocks blocks = random_blocks(type, 2, 1024);
    expect_heads_moved(blocks.view, wide, weight_format(type));
  }
}

TEST(ColumnOrder, WiderBlocksKeepTheirValuesInAnotherFormat) {
  for (const int64_t width : {32, 64, 128}) {
    const TiledHeads heads{.width = width, .key_heads = 2, .per_key = 4};
    const auto cols = heads.count() * width;
    for (const GgufType type : {GgufType::kQ4K, GgufType::kQ5K}) {
      const Blocks blocks = random_blocks(type, 3, cols);
      expect_heads_moved(blocks.view, heads, WeightFormat::kMlxAffine);
    }
  }
  // Not every value of Q6_K is a float32, but those of a small scale are.
  const TiledHeads heads{.width = 128, .key_heads = 2, .per_key = 2};
  Blocks blocks = random_blocks(GgufType::kQ6K, 3, 512);
  for (size_t at = 0; at < blocks.bytes.size(); at += 210) {
    blocks.bytes[at + 208] = 0;
    blocks.bytes[at + 209] = 0x2C;  // d = 1/16
  }
  expect_heads_moved(blocks.view, heads, WeightFormat::kF32);
}

TEST(ColumnOrder, PlainValues) {
  const TiledHeads heads{.width = 8, .key_heads = 2, .per_key = 3};
  std::vector<float> floats(2 * 48);
  for (size_t i = 0; i < floats.size(); ++i) floats[i] = static_cast<float>(i);
  const WeightMatrix source{.format = WeightFormat::kF32,
                            .rows = 2,
                            .cols = 48,
                            .codes = {reinterpret_cast<const std::byte*>(floats.data()), 48 * 4}};
  expect_heads_moved(source, heads, WeightFormat::kF32);
  std::vector<uint16_t> halves(2 * 48);
  for (size_t i = 0; i < halves.size(); ++i) halves[i] = static_cast<uint16_t>(0x3F80 + i);
  const WeightMatrix half{.format = WeightFormat::kBf16,
                          .rows = 2,
                          .cols = 48,
                          .codes = {reinterpret_cast<const std::byte*>(halves.data()), 48 * 2}};
  expect_heads_moved(half, heads, WeightFormat::kBf16);
}

}  // namespace
}  // namespace motley
