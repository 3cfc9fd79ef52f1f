#include "io/matrix_copy.h"

#include <gtest/gtest.h>

#include <random>

#include "base/aligned_buffer.h"

namespace motley {
namespace {

constexpr int64_t kCols = 40;

// A matrix of random codes with its storage; blocks of 4 x 16.
struct BlockMatrix {
  explicit BlockMatrix(int64_t rows, uint32_t seed = 1) {
    std::mt19937 rng(seed);
    view.format = WeightFormat::kBlockFloat;
    view.block = {BlockFloatFormat::Element::kE4M3, BlockFloatFormat::Scale::kF32, 4, 16};
    view.rows = rows;
    view.cols = kCols;
    codes.resize(static_cast<size_t>(rows * kCols));
    for (uint8_t& code : codes) code = static_cast<uint8_t>(rng() % 120);
    scales.resize(static_cast<size_t>(view.block.block_lines(rows) * view.block.blocks(kCols)));
    for (float& scale : scales) scale = 1.0f + static_cast<float>(rng() % 100);
    view.codes = {reinterpret_cast<const std::byte*>(codes.data()), kCols};
    view.scales = {reinterpret_cast<const std::byte*>(scales.data()), 3 * 4};
  }

  std::vector<uint8_t> codes;
  std::vector<float> scales;
  WeightMatrix view;
};

void expect_same_rows(const WeightMatrix& copy, const std::vector<WeightMatrix>& sources) {
  std::vector<float> got(kCols);
  std::vector<float> wanted(kCols);
  int64_t row = 0;
  for (const WeightMatrix& source : sources) {
    for (int64_t i = 0; i < source.rows; ++i, ++row) {
      decode_row(copy, row, got.data());
      decode_row(source, i, wanted.data());
      ASSERT_EQ(got, wanted) << row;
    }
  }
  EXPECT_EQ(copy.rows, row);
}

WeightMatrix copy_into(const std::vector<WeightMatrix>& sources, AlignedBuffer* memory) {
  const int64_t bytes = copied_matrix_bytes(sources);
  *memory = AlignedBuffer::allocate(static_cast<size_t>(bytes)).value();
  return copy_matrix(sources, memory->data());
}

TEST(MatrixCopy, WholeBlocksKeepTheirScales) {
  const BlockMatrix matrix(18);
  const std::vector<WeightMatrix> sources = {
      matrix.view.slice_rows(8, 8), matrix.view.slice_rows(0, 4), matrix.view.slice_rows(16, 2)};
  AlignedBuffer memory;
  const WeightMatrix copy = copy_into(sources, &memory);
  EXPECT_EQ(copy.block, matrix.view.block);
  EXPECT_EQ(copy.scale_lines(), 4);
  expect_same_rows(copy, sources);
}

TEST(MatrixCopy, CutBlocksGetALineOfScalesForEachRow) {
  const BlockMatrix matrix(18);
  const std::vector<std::vector<WeightMatrix>> cases = {
      {matrix.view.slice_rows(2, 5), matrix.view.slice_rows(12, 4)},
      {matrix.view.slice_rows(0, 3), matrix.view.slice_rows(4, 4)},
      {matrix.view.slice_rows(0, 4), matrix.view.slice_rows(9, 1)}};
  for (const std::vector<WeightMatrix>& sources : cases) {
    AlignedBuffer memory;
    const WeightMatrix copy = copy_into(sources, &memory);
    EXPECT_EQ(copy.block.block_rows, 1);
    expect_same_rows(copy, sources);
  }
}

// Streaming copies a matrix that is one range.
TEST(MatrixCopy, OneSourceStaysAsItIs) {
  const BlockMatrix matrix(18);
  const std::vector<WeightMatrix> sources = {matrix.view.slice_rows(3, 7)};
  AlignedBuffer memory;
  const WeightMatrix copy = copy_into(sources, &memory);
  EXPECT_EQ(copy.first_in_block, 3);
  EXPECT_EQ(copy.scale_lines(), 3);
  expect_same_rows(copy, sources);
}

TEST(MatrixCopy, RowsFollowOnlyInEveryPlane) {
  const BlockMatrix matrix(18);
  const WeightMatrix first = matrix.view.slice_rows(0, 6);
  EXPECT_TRUE(follows(first, matrix.view.slice_rows(6, 3)));
  EXPECT_FALSE(follows(first, matrix.view.slice_rows(7, 3)));
  WeightMatrix other = matrix.view.slice_rows(6, 3);
  other.tensor_scale = 2.0f;
  EXPECT_FALSE(same_format(first, other));
  EXPECT_FALSE(follows(first, other));
  other = matrix.view.slice_rows(6, 3);
  other.first_in_block = 0;
  EXPECT_FALSE(follows(first, other));
}

}  // namespace
}  // namespace motley
