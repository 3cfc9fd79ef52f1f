// Tolerance of attention: as in attention_test.cpp.
#include <algorithm>
#include <numeric>

#include "ops/attention_test_util.h"
#include "ops/cpu/cpu_test_util.h"
#include "ops/row_cache_test_util.h"
#include "support/random_cases.h"

namespace motley {
namespace {

constexpr double kTolerance = 2e-5;

struct TestSelection {
  TestSelection(int64_t rows, int64_t width)
      : positions(Shape{rows, width}, 1), counts(Shape{rows}) {}
  KeySelection view() { return {positions.view(), counts.view()}; }
  void set(int64_t row, const std::vector<int32_t>& keys) {
    std::copy(keys.begin(), keys.end(), positions.row(row));
    *counts.row(row) = static_cast<int32_t>(keys.size());
  }
  TestTensor<int32_t> positions;
  TestTensor<int32_t> counts;
};

// Some of the positions 0 .. own, ascending; sometimes none.
std::vector<int32_t> random_keys(TestRandom& random, int64_t own) {
  const double share = random.chance(0.1) ? 0.0 : random.uniform();
  std::vector<int32_t> keys;
  for (int64_t p = 0; p <= own; ++p) {
    if (random.chance(share)) keys.push_back(static_cast<int32_t>(p));
  }
  return keys;
}

struct LatentCase {
  explicit LatentCase(TestRandom& random)
      : heads(random.integer(1, 9)),
        rank(static_cast<int>(random.integer(1, 80))),
        width(rank + 2 * static_cast<int>(random.integer(0, 9))),
        dtype(random.chance(0.5) ? DType::kF32 : DType::kBf16),
        tokens(random.chance(0.2) ? random.integer(500, 1200) : random.integer(1, 150)) {}

  RowCacheLayout layout(DType element) const { return {64, width, element}; }

  int64_t heads;
  int rank;
  int width;
  DType dtype;
  int64_t tokens;
};

class CpuLatentTest : public CpuOpsTest {
 protected:
  template <typename T>
  static void fill(const OpTable& table, Stream& stream, const TestTensor<T>& rows,
                   const TestRowCache& cache) {
    const RowCacheSegment segment{{RowRole::kPrefill, 0, static_cast<int32_t>(rows.rows()), {0}},
                                  cache.view(rows.rows())};
    table.latent.row_write(stream, rows.view(), {&segment, 1});
  }
};

TEST_P(CpuLatentTest, RotationMatchesTheReference) {
  for (uint64_t seed = 0; seed < random_cases<uint64_t>(200); ++seed) {
    SCOPED_TRACE(seed);
    TestRandom random(seed);
    const auto rotary = static_cast<int>(2 * random.integer(1, 40));
    const int64_t stride = rotary + random.integer(0, 20);
    const int64_t heads = random.integer(1, 5);
    const auto rows = static_cast<int32_t>(random.integer(1, 6));
    TestTensor<float> x = random_tensor<float>(random, Shape{rows, heads, stride}, 1.0, 2);
    TestTensor<double> x64 = to_double(x);
    const RowSegment segments[] = {{RowRole::kDecode, 0, 1, {random.integer(0, 200000)}},
                                   {RowRole::kPrefill, 1, rows - 1, {random.integer(0, 200000)}}};
    const bool interleaved = random.chance(0.5);
    // In place, and into vectors that are further apart.
    TestTensor<float> y(Shape{rows, heads, stride + 3});
    TestTensor<double> y64(Shape{rows, heads, stride + 3});
    table_.latent.rotate(stream_, {x.view(), {rotary, 8e6}, interleaved, segments, y.view()});
    reference_.latent.rotate(stream_,
                             {x64.view(), {rotary, 8e6}, interleaved, segments, y64.view()});
    EXPECT_TRUE(all_near(y, y64, 2e-6, 2e-6));
    table_.latent.rotate(stream_, {x.view(), {rotary, 8e6}, interleaved, segments, x.view()});
    reference_.latent.rotate(stream_,
                             {x64.view(), {rotary, 8e6}, interleaved, segments, x64.view()});
    EXPECT_TRUE(all_near(x, x64, 2e-6, 2e-6));
  }
}

// Pairs are neighbours, as the families that interleave want it (trap 1 of their facts).
TEST_P(CpuLatentTest, RotationByHand) {
  TestTensor<float> x(Shape{1, 1, 4});
  x.row(0)[0] = 1.0f;
  x.row(0)[3] = 2.0f;
  TestTensor<float> y(Shape{1, 1, 4});
  const RowSegment segment{RowRole::kDecode, 0, 1, {3}};
  table_.latent.rotate(stream_, {x.view(), {4, 100.0}, true, {&segment, 1}, y.view()});
  EXPECT_NEAR(y.row(0)[0], std::cos(3.0), 1e-6);
  EXPECT_NEAR(y.row(0)[1], std::sin(3.0), 1e-6);
  EXPECT_NEAR(y.row(0)[2], -2 * std::sin(0.3), 1e-6);
  EXPECT_NEAR(y.row(0)[3], 2 * std::cos(0.3), 1e-6);
}

TEST_P(CpuLatentTest, HeadLinearMatchesTheReference) {
  for (uint64_t seed = 0; seed < random_cases<uint64_t>(200); ++seed) {
    SCOPED_TRACE(seed);
    TestRandom random(seed);
    const int64_t heads = random.integer(1, 5);
    const int64_t out = random.integer(1, 90);
    const int64_t in = random.integer(1, 90);
    const int64_t rows = random.chance(0.2) ? random.integer(60, 140) : random.integer(1, 9);
    const bool transposed = random.chance(0.5);
    // Heads lie one after the other with rows between them that belong to something else.
    const int64_t skip = random.integer(0, 7);
    TestTensor<float> values = random_tensor<float>(random, Shape{heads * (out + skip), in});
    std::vector<uint16_t> halves;
    WeightMatrix all{.rows = values.rows(), .cols = in};
    if (random.chance(0.5)) {
      all.format = WeightFormat::kBf16;
      for (int64_t r = 0; r < values.rows(); ++r) {
        for (int64_t c = 0; c < in; ++c) halves.push_back(to_bf16(values.row(r)[c]).bits);
      }
      all.codes = {reinterpret_cast<const std::byte*>(halves.data()), in * 2};
    } else {
      all.codes = {reinterpret_cast<const std::byte*>(values.row(0)), in * 4};
    }
    std::vector<WeightMatrix> weights;
    for (int64_t h = 0; h < heads; ++h) weights.push_back(all.slice_rows(h * (out + skip), out));
    const int64_t x_width = (transposed ? out : in) + random.integer(0, 5);
    const int64_t y_width = (transposed ? in : out) + random.integer(0, 5);
    const auto x = random_tensor<float>(random, Shape{rows, heads, x_width}, 1.0, 1);
    TestTensor<float> y(Shape{rows, heads, y_width}, 1);
    TestTensor<double> expected(Shape{rows, heads, y_width});
    table_.latent.head_linear(stream_, x.view(), weights, transposed, y.view());
    reference_.latent.head_linear(stream_, to_double(x).view(), weights, transposed,
                                  expected.view());
    // Sums of at most 90 products of size one.
    EXPECT_TRUE(all_near(y, expected, 8 * 0x1p-24 * std::sqrt(90.0) * 90));
  }
}

TEST_P(CpuLatentTest, HeadLinearRowsDoNotDependOnTheirNumber) {
  TestRandom random(3);
  const auto values = random_tensor<float>(random, Shape{40, 33});
  const WeightMatrix all{
      .rows = 40, .cols = 33, .codes = {reinterpret_cast<const std::byte*>(values.row(0)), 33 * 4}};
  const std::vector<WeightMatrix> weights = {all.slice_rows(0, 20), all.slice_rows(20, 20)};
  const auto x = random_tensor<float>(random, Shape{70, 2, 33});
  for (const bool transposed : {false, true}) {
    TestTensor<float> whole(Shape{70, 2, 33});
    table_.latent.head_linear(stream_, x.view(), weights, transposed, whole.view());
    for (const int64_t piece : {1, 3, 64}) {
      TestStream alone(1);
      TestTensor<float> y(Shape{70, 2, 33});
      for (int64_t r = 0; r < 70; r += piece) {
        const int64_t rows = std::min(piece, 70 - r);
        table_.latent.head_linear(alone, x.view().slice_rows(r, rows), weights, transposed,
                                  y.view().slice_rows(r, rows));
      }
      EXPECT_TRUE(y.same_bits(whole)) << piece;
    }
  }
}

TEST_P(CpuLatentTest, CacheKeepsWhatWasWritten) {
  TestRandom random(1);
  for (const DType dtype : {DType::kF32, DType::kBf16}) {
    const auto rows = random_tensor<float>(random, Shape{130, 21}, 1.0, 2);
    const TestRowCache cache({16, 21, dtype}, 130);
    fill(table_, stream_, rows, cache);
    const auto kept = as_cached(dtype, rows);
    for (int64_t t = 0; t < 130; ++t) {
      for (int64_t c = 0; c < 21; ++c) ASSERT_EQ(cache.element(t, c), kept.row(t)[c]);
    }
  }
}

// Rows with every key, with some, with none; whole caches and shards.
TEST_P(CpuLatentTest, AttendMatchesTheReference) {
  for (uint64_t seed = 0; seed < random_cases<uint64_t>(200); ++seed) {
    SCOPED_TRACE(seed);
    TestRandom random(seed);
    const LatentCase c(random);
    const auto latents = random_tensor<float>(random, Shape{c.tokens, c.width});
    const int64_t first = std::max<int64_t>(0, c.tokens - random.integer(1, 12));
    const int64_t rows = c.tokens - first;
    const auto q = random_tensor<float>(random, Shape{rows, c.heads, c.width}, 1.0, 1);
    TestSelection selection(rows, c.tokens);
    for (int64_t r = 0; r < rows; ++r) {
      selection.set(r, random_keys(random, first + r));
      if (random.chance(0.4)) *selection.counts.row(r) = kEveryKey;
    }
    const bool has_selection = random.chance(0.8);
    const int shards = random.chance(0.3) ? 3 : 1;
    const CacheShard shard{static_cast<int>(random.integer(0, shards - 1)), shards, 16};
    const TestRowCache cache(c.layout(c.dtype), c.tokens, shard);
    const TestRowCache wide(c.layout(DType::kF64), c.tokens, shard);
    fill(table_, stream_, latents, cache);
    fill(reference_, stream_, to_double(as_cached(c.dtype, latents)), wide);
    const RowSegment segment{RowRole::kPrefill, 0, static_cast<int32_t>(rows), {first}};
    const RowCacheSegment at{segment, cache.view(c.tokens)};
    const RowCacheSegment wide_at{segment, wide.view(c.tokens)};
    const float scale = 1.0f / std::sqrt(static_cast<float>(c.width));
    TestPartial<float> result(rows, c.heads, c.rank);
    TestPartial<double> expected(rows, c.heads, c.rank);
    table_.latent.attend(stream_, {q.view(),
                                   c.rank,
                                   scale,
                                   {&at, 1},
                                   has_selection ? selection.view() : KeySelection{},
                                   result.view()});
    reference_.latent.attend(stream_, {to_double(q).view(),
                                       c.rank,
                                       scale,
                                       {&wide_at, 1},
                                       has_selection ? selection.view() : KeySelection{},
                                       expected.view()});
    EXPECT_TRUE(all_near(result.out, expected.out, kTolerance));
    EXPECT_TRUE(all_near(result.lse, expected.lse, kTolerance));
  }
}

// A selection of every key is no selection: the same list, the same bits.
TEST_P(CpuLatentTest, SelectingAllIsSelectingNothing) {
  TestRandom random(7);
  for (const DType dtype : {DType::kF32, DType::kBf16}) {
    const int64_t tokens = 1300;
    const auto latents = random_tensor<float>(random, Shape{tokens, 45});
    const auto q = random_tensor<float>(random, Shape{5, 6, 45});
    const TestRowCache cache({64, 45, dtype}, tokens);
    fill(table_, stream_, latents, cache);
    TestSelection selection(5, tokens);
    for (int64_t r = 0; r < 5; ++r) {
      std::vector<int32_t> all(static_cast<size_t>(tokens - 5 + r + 1));
      std::iota(all.begin(), all.end(), 0);
      selection.set(r, all);
    }
    const RowCacheSegment segment{{RowRole::kPrefill, 0, 5, {tokens - 5}}, cache.view(tokens)};
    TestPartial<float> chosen(5, 6, 32);
    TestPartial<float> every(5, 6, 32);
    table_.latent.attend(stream_,
                         {q.view(), 32, 0.2f, {&segment, 1}, selection.view(), chosen.view()});
    table_.latent.attend(stream_, {q.view(), 32, 0.2f, {&segment, 1}, {}, every.view()});
    EXPECT_TRUE(chosen.out.same_bits(every.out) && chosen.lse.same_bits(every.lse));
  }
}

TEST_P(CpuLatentTest, AttendRowsDoNotDependOnBatchOrThreads) {
  TestRandom random(9);
  const int64_t tokens = 700;
  const int64_t rows = 90;
  const auto latents = random_tensor<float>(random, Shape{tokens, 40});
  const auto q = random_tensor<float>(random, Shape{rows, 7, 40});
  const TestRowCache cache({64, 40, DType::kF32}, tokens);
  fill(table_, stream_, latents, cache);
  TestSelection selection(rows, tokens);
  for (int64_t r = 0; r < rows; ++r) {
    selection.set(r, random_keys(random, tokens - rows + r));
    if (r < 30 || r % 7 == 0) *selection.counts.row(r) = kEveryKey;
  }
  const auto run = [&](Stream& stream, int64_t piece) {
    TestPartial<float> result(rows, 7, 32);
    for (int64_t r = 0; r < rows; r += piece) {
      const auto count = static_cast<int32_t>(std::min(piece, rows - r));
      const RowCacheSegment segment{
          {RowRole::kPrefill, static_cast<int32_t>(r), count, {tokens - rows + r}},
          cache.view(tokens - rows + r + count)};
      table_.latent.attend(stream,
                           {q.view(), 32, 0.2f, {&segment, 1}, selection.view(), result.view()});
    }
    return result;
  };
  const TestPartial<float> whole = run(stream_, rows);
  for (const int threads : {1, 5}) {
    for (const int64_t piece : {1, 7, 64}) {
      TestStream stream(threads);
      const TestPartial<float> result = run(stream, piece);
      EXPECT_TRUE(result.out.same_bits(whole.out) && result.lse.same_bits(whole.lse))
          << threads << " threads, " << piece << " rows a call";
    }
  }
}

MOTLEY_TEST_EACH_CPU(CpuLatentTest);

}  // namespace
}  // namespace motley
