// Scores are sums over the heads of a weight times a dot product of `dim` products of size one: 64
// roundings of 2^-24 of their size leave a factor of ten.
#include "ops/cpu/cpu_test_util.h"
#include "ops/row_cache_test_util.h"
#include "support/random_cases.h"

namespace motley {
namespace {

class CpuIndexTest : public CpuOpsTest {
 protected:
  template <typename T>
  static void fill(const OpTable& table, Stream& stream, const TestTensor<T>& keys,
                   const TestRowCache& cache) {
    const RowCacheSegment segment{{RowRole::kPrefill, 0, static_cast<int32_t>(keys.rows()), {0}},
                                  cache.view(keys.rows())};
    table.latent.row_write(stream, keys.view(), {&segment, 1});
  }

  // The choice of one row, through both backends, which must agree.
  std::vector<int32_t> choose(const std::vector<float>& scores, int top_k) {
    TestTensor<float> row(Shape{1, static_cast<int64_t>(scores.size())});
    std::copy(scores.begin(), scores.end(), row.row(0));
    TestTensor<int32_t> candidates(Shape{1}), chosen(Shape{1, top_k}), counts(Shape{1});
    *candidates.row(0) = static_cast<int32_t>(scores.size());
    table_.index.select(stream_, {std::as_const(row).view(),
                                  std::as_const(candidates).view(),
                                  {},
                                  chosen.view(),
                                  counts.view()});
    TestTensor<int32_t> wanted(Shape{1, top_k}), wanted_counts(Shape{1});
    reference_.index.select(stream_, {to_double(row).view(),
                                      std::as_const(candidates).view(),
                                      {},
                                      wanted.view(),
                                      wanted_counts.view()});
    EXPECT_TRUE(chosen.same_bits(wanted) && counts.same_bits(wanted_counts));
    return {chosen.row(0), chosen.row(0) + *counts.row(0)};
  }
};

TEST_P(CpuIndexTest, LayerNormMatchesTheReference) {
  for (uint64_t seed = 0; seed < random_cases<uint64_t>(200); ++seed) {
    SCOPED_TRACE(seed);
    TestRandom random(seed);
    const int64_t dim = random.integer(2, 200);
    TestTensor<float> x = random_tensor<float>(random, Shape{random.integer(1, 5), dim}, 3.0, 1);
    const auto weight = random_tensor<float>(random, Shape{dim});
    const auto bias = random_tensor<float>(random, Shape{dim});
    TestTensor<double> expected(x.shape());
    reference_.index.layer_norm(stream_, to_double(x).view(), weight.view(), bias.view(), 1e-6f,
                                expected.view());
    table_.index.layer_norm(stream_, x.view(), weight.view(), bias.view(), 1e-6f, x.view());
    EXPECT_TRUE(all_near(x, expected, 2e-5, 1e-5));
  }
}

TEST_P(CpuIndexTest, ScoresMatchTheReference) {
  for (uint64_t seed = 0; seed < random_cases<uint64_t>(200); ++seed) {
    SCOPED_TRACE(seed);
    TestRandom random(seed);
    const int64_t heads = random.integer(1, 9);
    const int64_t dim = random.integer(1, 70);
    const int per_key = random.chance(0.5) ? 1 : static_cast<int>(random.integer(2, 16));
    const int64_t rows_per_page = per_key == 1 ? 64 : 16;
    const int64_t tokens = random.chance(0.1) ? random.integer(1000, 2600) : random.integer(1, 200);
    const int64_t keys = tokens / per_key;
    const DType dtype = random.chance(0.5) ? DType::kF32 : DType::kBf16;
    const auto k = random_tensor<float>(random, Shape{keys, dim});
    const RowCacheLayout layout{static_cast<int>(rows_per_page), static_cast<int>(dim), dtype};
    RowCacheLayout wide_layout = layout;
    wide_layout.dtype = DType::kF64;
    const TestRowCache cache(layout, keys);
    const TestRowCache wide(wide_layout, keys);
    fill(table_, stream_, k, cache);
    fill(reference_, stream_, to_double(as_cached(dtype, k)), wide);
    const int64_t first = std::max<int64_t>(0, tokens - random.integer(1, 20));
    const int64_t rows = tokens - first;
    const auto q = random_tensor<float>(random, Shape{rows, heads, dim}, 1.0, 1);
    const auto weights = random_tensor<float>(random, Shape{rows, heads}, 1.0, 1);
    const RowSegment segment{RowRole::kPrefill, 0, static_cast<int32_t>(rows), {first}};
    const RowCacheSegment at{segment, cache.view(keys)};
    const RowCacheSegment wide_at{segment, wide.view(keys)};
    // What is not a candidate stays as it was.
    TestTensor<float> scores(Shape{rows, keys + 1}, 2);
    TestTensor<double> expected(Shape{rows, keys + 1});
    table_.index.scores(stream_,
                        {q.view(), weights.view(), 0.7f, {&at, 1}, per_key, scores.view()});
    reference_.index.scores(stream_, {to_double(q).view(),
                                      to_double(weights).view(),
                                      0.7f,
                                      {&wide_at, 1},
                                      per_key,
                                      expected.view()});
    EXPECT_TRUE(all_near(scores, expected, 1e-4, 1e-5));
  }
}

TEST_P(CpuIndexTest, ScoresDoNotDependOnBatchOrThreads) {
  TestRandom random(4);
  const int64_t tokens = 1200;
  const auto k = random_tensor<float>(random, Shape{tokens, 24});
  const TestRowCache cache({64, 24, DType::kF32}, tokens);
  fill(table_, stream_, k, cache);
  const auto q = random_tensor<float>(random, Shape{50, 6, 24});
  const auto weights = random_tensor<float>(random, Shape{50, 6});
  const auto run = [&](Stream& stream, int64_t piece) {
    TestTensor<float> scores(Shape{50, tokens});
    for (int64_t r = 0; r < 50; r += piece) {
      const auto rows = static_cast<int32_t>(std::min<int64_t>(piece, 50 - r));
      const RowCacheSegment segment{
          {RowRole::kPrefill, static_cast<int32_t>(r), rows, {tokens - 50 + r}},
          cache.view(tokens - 50 + r + rows)};
      table_.index.scores(stream,
                          {q.view(), weights.view(), 1.0f, {&segment, 1}, 1, scores.view()});
    }
    return scores;
  };
  const TestTensor<float> whole = run(stream_, 50);
  for (const int threads : {1, 5}) {
    for (const int64_t piece : {1, 7, 33}) {
      TestStream stream(threads);
      EXPECT_TRUE(run(stream, piece).same_bits(whole)) << threads << " threads, " << piece;
    }
  }
}

TEST_P(CpuIndexTest, SelectMatchesTheReference) {
  for (uint64_t seed = 0; seed < random_cases<uint64_t>(200); ++seed) {
    SCOPED_TRACE(seed);
    TestRandom random(seed);
    const int64_t rows = random.integer(1, 5);
    const int64_t width = random.integer(1, 400);
    const int64_t top_k = random.integer(1, 120);
    TestTensor<float> scores = random_tensor<float>(random, Shape{rows, width}, 1.0, 1);
    TestTensor<int32_t> candidates(Shape{rows});
    const double zeros = random.uniform();
    for (int64_t r = 0; r < rows; ++r) {
      *candidates.row(r) = static_cast<int32_t>(random.integer(0, width));
      for (int64_t i = 0; i < width; ++i) {
        // What relu and weights of either sign do: many equal scores, of both zeros.
        if (random.chance(zeros)) scores.row(r)[i] = random.chance(0.5) ? 0.0f : -0.0f;
        if (random.chance(0.02)) scores.row(r)[i] = std::numeric_limits<float>::quiet_NaN();
      }
    }
    TestTensor<int32_t> forced(Shape{rows, top_k});
    for (int64_t r = 0; r < rows; ++r) {
      const bool is_forced = random.chance(0.3);
      const int64_t count = random.integer(1, top_k);
      for (int64_t i = 0; i < top_k; ++i) {
        forced.row(r)[i] = is_forced && i < count ? static_cast<int32_t>(2 * i) : -1;
      }
    }
    const ConstTensorView forced_view =
        random.chance(0.5) ? std::as_const(forced).view() : ConstTensorView{};
    TestTensor<int32_t> chosen(Shape{rows, top_k}), wanted(Shape{rows, top_k});
    TestTensor<int32_t> counts(Shape{rows}), wanted_counts(Shape{rows});
    const auto limits = std::as_const(candidates).view();
    table_.index.select(
        stream_, {std::as_const(scores).view(), limits, forced_view, chosen.view(), counts.view()});
    reference_.index.select(stream_, {to_double(scores).view(), limits, forced_view, wanted.view(),
                                      wanted_counts.view()});
    EXPECT_TRUE(chosen.same_bits(wanted) && counts.same_bits(wanted_counts));
  }
}

TEST_P(CpuIndexTest, EqualScoresGoToTheEarlierPosition) {
  EXPECT_EQ(choose({0, 1, 0, 0, 2, 0}, 4), (std::vector<int32_t>{0, 1, 2, 4}));
  EXPECT_EQ(choose({-0.0f, 0.0f, -0.0f, 0.0f}, 2), (std::vector<int32_t>{0, 1}));
  EXPECT_EQ(choose({3, 2, 1}, 5), (std::vector<int32_t>{0, 1, 2}));
  const float nan = std::numeric_limits<float>::quiet_NaN();
  EXPECT_EQ(choose({nan, nan, -5, nan}, 2), (std::vector<int32_t>{0, 2}));
}

MOTLEY_TEST_EACH_CPU(CpuIndexTest);

}  // namespace
}  // namespace motley
