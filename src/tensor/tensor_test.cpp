#include <gtest/gtest.h>

#include <type_traits>
#include <vector>

#include "numeric/half.h"
#include "tensor/cache_view.h"
#include "tensor/partial_attention.h"
#include "tensor/tensor_view.h"
#include "tensor/weight_matrix.h"

namespace motley {
namespace {

// R1: nothing but the merger turns a partial result into an attention output.
static_assert(!std::is_constructible_v<AttentionOutput, TensorView>);
static_assert(!std::is_constructible_v<AttentionOutput, PartialAttention>);
static_assert(!std::is_convertible_v<PreNormHidden, PostNormHidden>);

TEST(TensorView, SlicesKeepTheStride) {
  std::vector<float> data(24);
  for (size_t i = 0; i < data.size(); ++i) data[i] = static_cast<float>(i);
  const TensorView view = view_of(data.data(), {4, 6});
  const TensorView cols = view.slice_cols(2, 3);
  EXPECT_FALSE(cols.is_contiguous());
  EXPECT_EQ(cols.row<float>(1)[0], 8.0f);
  const ConstTensorView rows = cols.slice_rows(2, 2);
  EXPECT_EQ(rows.row<float>(1)[2], 22.0f);
  EXPECT_EQ(rows.shape, (Shape{2, 3}));
}

TEST(TensorViewDeathTest, WrongTypeIsABug) {
  std::vector<float> data(4);
  const TensorView view = view_of(data.data(), {2, 2});
  EXPECT_DEATH((void)view.row<double>(0), "element type");
  EXPECT_DEATH((void)view.row<float>(2), "out of range");
}

TEST(WeightMatrix, DecodesAndSlicesAffineRows) {
  const std::vector<uint8_t> codes = [] {
    std::vector<uint8_t> unpacked(64);
    for (size_t i = 0; i < unpacked.size(); ++i) unpacked[i] = static_cast<uint8_t>(i % 16);
    std::vector<uint8_t> packed(32);
    mlx_pack_codes(unpacked, 4, packed.data());
    packed.insert(packed.end(), packed.begin(), packed.end());
    return packed;
  }();
  const std::vector<uint16_t> scales = {to_bf16(0.5f).bits, to_bf16(2.0f).bits};
  const std::vector<uint16_t> biases = {to_bf16(-1.0f).bits, to_bf16(3.0f).bits};
  WeightMatrix weights;
  weights.format = WeightFormat::kMlxAffine;
  weights.rows = 2;
  weights.cols = 64;
  weights.affine = {4, 64};
  weights.scale_dtype = DType::kBf16;
  weights.codes = {reinterpret_cast<const std::byte*>(codes.data()), 32};
  weights.scales = {reinterpret_cast<const std::byte*>(scales.data()), 2};
  weights.biases = {reinterpret_cast<const std::byte*>(biases.data()), 2};
  EXPECT_EQ(weights.bytes(), 72);
  std::vector<float> row(64);
  decode_row(weights.slice_rows(1, 1), 0, row.data());
  EXPECT_EQ(row[5], 13.0f);
  std::vector<double> exact(64);
  decode_row(weights, 0, exact.data());
  EXPECT_EQ(exact[17], -0.5);
}

TEST(PageLayout, PlanesTileThePage) {
  const PageLayout layout{.tokens_per_page = 4, .kv_heads = 2, .head_dim = 8};
  EXPECT_EQ(layout.page_bytes(), 2 * 2 * 4 * 8 * 4);
  EXPECT_EQ(layout.key_offset(0, 1), 8);
  EXPECT_EQ(layout.value_offset(0, 0), 32);
  EXPECT_EQ(layout.key_offset(1, 0), 64);
  EXPECT_EQ(layout.value_offset(1, 3), 96 + 24);
}

}  // namespace
}  // namespace motley
