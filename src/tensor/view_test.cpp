// Shapes, views and the dealing of cache tokens to shards.
#include <gtest/gtest.h>

#include <numeric>
#include <set>
#include <vector>

#include "base/owned_context.h"
#include "tensor/cache_view.h"
#include "tensor/row_batch.h"
#include "tensor/stream.h"
#include "tensor/tensor_view.h"

namespace motley {
namespace {

TEST(Shape, CountsElements) {
  const Shape shape{3, 4, 5};
  EXPECT_EQ(shape.rank(), 3);
  EXPECT_EQ(shape.elements(), 60);
  EXPECT_EQ(shape.inner(), 20);
  EXPECT_EQ(shape.to_string(), "[3, 4, 5]");
  EXPECT_EQ((Shape{7}).inner(), 1);
  EXPECT_EQ((Shape{0, 4}).elements(), 0);
  EXPECT_EQ((Shape{}).to_string(), "[]");
}

TEST(Shape, EqualityMindsTheRank) {
  EXPECT_NE((Shape{3}), (Shape{3, 0}));
  EXPECT_NE((Shape{3, 4}), (Shape{4, 3}));
  EXPECT_EQ((Shape{3, 4}), (Shape{3, 4}));
}

TEST(ShapeDeathTest, AtMostFourDimensions) {
  EXPECT_DEATH((void)Shape({1, 2, 3, 4, 5}), "at most four dimensions");
  const Shape shape{1, 2};
  EXPECT_DEATH((void)shape[2], "dimension out of range");
  EXPECT_DEATH((void)shape[-1], "dimension out of range");
}

std::vector<float> counted(size_t count) {
  std::vector<float> values(count);
  std::iota(values.begin(), values.end(), 0.0f);
  return values;
}

TEST(TensorView, RowSlicesKeepEveryInnerDimension) {
  std::vector<float> data = counted(2 * 3 * 2 * 2);
  const TensorView cube = view_of(data.data(), {2, 3, 2, 2}).slice_rows(1, 1);
  EXPECT_EQ(cube.shape, (Shape{1, 3, 2, 2}));
  EXPECT_EQ(cube.row<float>(0)[0], 12.0f);
  const TensorView vector = view_of(data.data(), {24}).slice_rows(5, 2);
  EXPECT_EQ(vector.shape, Shape{2});
  EXPECT_EQ(vector.row<float>(1)[0], 6.0f);
  const TensorView heads = view_of(data.data(), {4, 3, 2}).slice_rows(1, 3).slice_rows(1, 1);
  EXPECT_EQ(heads.shape, (Shape{1, 3, 2}));
  EXPECT_EQ(heads.row<float>(0)[0], 12.0f);
}

TEST(TensorView, AnEmptySliceIsAllowedAtTheEnd) {
  std::vector<float> data = counted(6);
  const TensorView view = view_of(data.data(), {3, 2});
  EXPECT_EQ(view.slice_rows(3, 0).rows(), 0);
  EXPECT_EQ(view.slice_rows(3, 0).shape, (Shape{0, 2}));
  EXPECT_EQ(view.slice_cols(2, 0).cols(), 0);
}

TEST(TensorView, ContiguousMeansNoGapBetweenRows) {
  std::vector<float> data = counted(12);
  const TensorView view = view_of(data.data(), {3, 4});
  EXPECT_TRUE(view.is_contiguous());
  EXPECT_TRUE(view.slice_rows(1, 2).is_contiguous());
  const TensorView cols = view.slice_cols(0, 2);
  EXPECT_FALSE(cols.is_contiguous());
  EXPECT_TRUE(cols.slice_rows(1, 1).is_contiguous()) << "a single row has no gap";
}

TEST(TensorView, WritingThroughASliceReachesTheBuffer) {
  std::vector<float> data(12, 0.0f);
  const TensorView cell = view_of(data.data(), {3, 4}).slice_cols(1, 2).slice_rows(2, 1);
  cell.row<float>(0)[1] = 5.0f;
  EXPECT_EQ(data[10], 5.0f);
  EXPECT_EQ(std::accumulate(data.begin(), data.end(), 0.0f), 5.0f);
}

TEST(TensorView, SlicesCountInElementsOfTheirType) {
  std::vector<double> wide(8);
  std::iota(wide.begin(), wide.end(), 0.0);
  EXPECT_EQ(view_of(wide.data(), {2, 4}).slice_cols(1, 3).row<double>(1)[0], 5.0);
  std::vector<uint16_t> narrow = {0, 1, 2, 3, 4, 5, 6, 7};
  EXPECT_EQ(view_of(narrow.data(), {2, 4}).slice_cols(1, 3).row<uint16_t>(1)[0], 5);
  std::vector<int32_t> ids = {0, 1, 2, 3};
  EXPECT_EQ(view_of(ids.data(), {4}).slice_rows(3, 1).as<int32_t>()[0], 3);
}

TEST(TensorViewDeathTest, SlicesStayInside) {
  std::vector<float> data = counted(12);
  const TensorView view = view_of(data.data(), {3, 4});
  EXPECT_DEATH((void)view.slice_rows(2, 2), "row slice out of range");
  EXPECT_DEATH((void)view.slice_rows(1, -1), "row slice out of range");
  EXPECT_DEATH((void)view.slice_cols(3, 2), "column slice out of range");
  EXPECT_DEATH((void)view.slice_cols(-1, 2), "column slice out of range");
  EXPECT_DEATH((void)view.slice_cols(2, -1), "column slice out of range");
  EXPECT_DEATH((void)view_of(data.data(), {3, 2, 2}).slice_cols(0, 1), "column slice out of range");
  EXPECT_DEATH((void)view.row<float>(-1), "row out of range");
  EXPECT_DEATH((void)view.as<int32_t>(), "element type");
}

TEST(TensorView, TheDefaultViewIsEmpty) {
  const ConstTensorView nothing;
  EXPECT_TRUE(nothing.is_empty());
  EXPECT_EQ(nothing.rows(), 0);
}

TEST(ScratchView, ComesFromTheStreamAndGoesWithTheScope) {
  OwnedContext context({.threads = 1});
  HostStream stream(context.get());
  const std::byte* first = nullptr;
  {
    const Arena::Scope scope(stream.scratch());
    const TensorView a = scratch_view(stream, DType::kF64, {3, 5});
    const TensorView b = scratch_view(stream, DType::kI32, {2});
    EXPECT_EQ(a.space, MemorySpace::kHost);
    EXPECT_EQ(a.row_stride, 5);
    EXPECT_GE(b.data, a.data + 15 * sizeof(double)) << "no overlap";
    first = a.data;
  }
  const Arena::Scope scope(stream.scratch());
  EXPECT_EQ(scratch_view(stream, DType::kF32, {1}).data, first);
}

// Every element of a page has one place, and all places are used: for several layouts.
TEST(PageLayout, OffsetsAreABijection) {
  for (const PageLayout& layout :
       {PageLayout{.tokens_per_page = 4, .kv_heads = 3, .head_dim = 8},
        PageLayout{.tokens_per_page = 64, .kv_heads = 2, .head_dim = 16, .dtype = DType::kBf16},
        PageLayout{.tokens_per_page = 1, .kv_heads = 1, .head_dim = 2, .dtype = DType::kF64}}) {
    std::set<int64_t> seen;
    for (int head = 0; head < layout.kv_heads; ++head) {
      for (int slot = 0; slot < layout.tokens_per_page; ++slot) {
        for (int i = 0; i < layout.head_dim; ++i) {
          seen.insert(layout.key_offset(head, slot) + i);
          seen.insert(layout.value_offset(head, slot) + i);
        }
      }
    }
    const int64_t elements = layout.page_bytes() / dtype_bytes(layout.dtype);
    EXPECT_EQ(std::ssize(seen), elements);
    EXPECT_EQ(*seen.begin(), 0);
    EXPECT_EQ(*seen.rbegin(), elements - 1);
  }
}

TEST(CacheShard, DealsEveryTokenToOneShard) {
  for (const int count : {1, 2, 3, 4}) {
    for (const int interleave : {1, 3, 64}) {
      std::vector<int64_t> held(static_cast<size_t>(count), 0);
      for (int64_t position = 0; position < 400; ++position) {
        int holders = 0;
        for (int index = 0; index < count; ++index) {
          const CacheShard shard{.index = index, .count = count, .interleave = interleave};
          int64_t& before = held[static_cast<size_t>(index)];
          EXPECT_EQ(shard.tokens_below(position), before)
              << index << " of " << count << " by " << interleave << " at " << position;
          if (!shard.holds(position)) continue;
          ++holders;
          ++before;
        }
        EXPECT_EQ(holders, 1);
      }
    }
  }
}

TEST(CacheShard, TheDefaultIsTheWholeCache) {
  const CacheShard whole;
  EXPECT_TRUE(whole.is_whole());
  EXPECT_TRUE(whole.holds(12345));
  EXPECT_EQ(whole.tokens_below(12345), 12345);
  EXPECT_FALSE((CacheShard{.index = 0, .count = 2}).is_whole());
}

TEST(RowBatch, PositionsAreOrdered) {
  EXPECT_LT(GlobalPosition{3}, GlobalPosition{4});
  EXPECT_EQ(GlobalPosition{4}, GlobalPosition{4});
  EXPECT_EQ((RowCounts{.decode = 2, .prefill = 5}).total(), 7);
}

}  // namespace
}  // namespace motley
