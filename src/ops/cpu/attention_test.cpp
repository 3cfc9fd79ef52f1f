// Tolerances: a score is a sum of head_dim products, in 16 (or fewer) chains, so its error is some
// roundings of 2^-24 of sum|q k| / sqrt(dim), about 1e-6; that error goes into the exponent and so
// into the weights. 2e-5 of the values' scale leaves a factor of ten for long sums. The bf16 cache
// adds nothing here: the reference reads the rounded keys and values too.
#include <memory>

#include "ops/attention_test_util.h"
#include "ops/cpu/cpu_test_util.h"
#include "support/random_cases.h"

namespace motley {
namespace {

constexpr double kTolerance = 2e-5;

struct AttentionCase {
  int kv_heads = 1;
  int group = 1;
  int dim = 8;
  DType dtype = DType::kF32;
  int heads() const { return kv_heads * group; }
  PageLayout layout(DType element) const { return {64, kv_heads, dim, element}; }
};

AttentionCase random_case(TestRandom& random) {
  return {static_cast<int>(random.integer(1, 3)), static_cast<int>(random.integer(1, 9)),
          static_cast<int>(random.integer(1, 12) * (random.chance(0.5) ? 8 : 3)),
          random.chance(0.5) ? DType::kF32 : DType::kBf16};
}

TestTensor<float> rounded_to(DType dtype, TestTensor<float> tensor) {
  if (dtype == DType::kF32) return tensor;
  for (int64_t r = 0; r < tensor.rows(); ++r) {
    for (int64_t c = 0; c < tensor.cols(); ++c) {
      tensor.row(r)[c] = to_float(to_bf16(tensor.row(r)[c]));
    }
  }
  return tensor;
}

// Keys, values and queries of one sequence.
struct Sequence {
  Sequence(TestRandom& random, const AttentionCase& c, int64_t tokens)
      : k(random_tensor<float>(random, Shape{tokens, c.kv_heads, c.dim})),
        v(random_tensor<float>(random, Shape{tokens, c.kv_heads, c.dim})),
        q(random_tensor<float>(random, Shape{tokens, c.heads(), c.dim})) {}
  TestTensor<float> k, v, q;
};

class CpuAttentionTest : public CpuOpsTest {
 protected:
  // Fills a cache with tokens [0, tokens) of `sequence`.
  template <typename T>
  static void fill(const OpTable& table, Stream& stream, const TestTensor<T>& k,
                   const TestTensor<T>& v, const TestCache& cache) {
    const AttentionSegment segment{{RowRole::kPrefill, 0, static_cast<int32_t>(k.rows()), {0}},
                                   cache.view(k.rows())};
    table.attention.cache_write(stream, k.view(), v.view(), {&segment, 1});
  }

  // Rows [first, tokens) of the sequence in pieces.
  static TestPartial<float> run(const OpTable& table, Stream& stream, const AttentionCase& c,
                                const TestTensor<float>& q, const TestCache& cache, int64_t first,
                                int64_t piece, RowRole role = RowRole::kPrefill) {
    TestPartial<float> result(q.rows(), c.heads(), c.dim);
    for (int64_t t = first; t < q.rows(); t += piece) {
      const auto rows = static_cast<int32_t>(std::min(piece, q.rows() - t));
      const AttentionSegment segment{{role, static_cast<int32_t>(t), rows, {t}},
                                     cache.view(t + rows)};
      table.attention.attend(stream, {q.view(), c.kv_heads, 0.3f, {&segment, 1}, result.view()});
    }
    return result;
  }
};

TEST_P(CpuAttentionTest, HeadNormRotaryMatchesTheReference) {
  for (uint64_t seed = 0; seed < random_cases<uint64_t>(200); ++seed) {
    SCOPED_TRACE(seed);
    TestRandom random(seed);
    const int64_t dim = random.integer(2, 130);
    const int64_t heads = random.integer(1, 5);
    const int64_t stride = dim * (random.chance(0.5) ? 2 : 1);
    const auto rows = static_cast<int32_t>(random.integer(1, 6));
    const auto x = random_tensor<float>(random, Shape{rows, heads, stride}, 2.0, 3);
    const auto x64 = to_double(x);
    const auto weight = random_tensor<float>(random, Shape{dim});
    const RotaryParams rotary{static_cast<int>(random.integer(0, dim / 2) * 2), 1e7};
    const RowSegment segments[] = {{RowRole::kDecode, 0, 1, {random.integer(0, 200000)}},
                                   {RowRole::kPrefill, 1, rows - 1, {random.integer(0, 200000)}}};
    TestTensor<float> y(Shape{rows, heads, dim}, 1);
    TestTensor<double> expected(Shape{rows, heads, dim});
    table_.attention.head_norm_rotary(
        stream_, {x.view(), weight.view(), 1e-6f, 1.0f, rotary, segments, y.view()});
    reference_.attention.head_norm_rotary(
        stream_, {x64.view(), weight.view(), 1e-6f, 1.0f, rotary, segments, expected.view()});
    // Also far from position 0: angles are computed in double.
    EXPECT_TRUE(all_near(y, expected, 5e-6, 5e-6));
  }
}

TEST_P(CpuAttentionTest, CacheKeepsWhatWasWritten) {
  TestRandom random(1);
  for (const DType dtype : {DType::kF32, DType::kBf16}) {
    const AttentionCase c{2, 1, 21, dtype};
    const Sequence sequence(random, c, 130);
    const TestCache cache(c.layout(dtype), 130);
    fill(table_, stream_, sequence.k, sequence.v, cache);
    const auto k = rounded_to(dtype, sequence.k);
    const auto v = rounded_to(dtype, sequence.v);
    for (int64_t t = 0; t < 130; ++t) {
      for (int i = 0; i < 2 * c.dim; ++i) {
        ASSERT_EQ(cache.element(i / c.dim, t, i % c.dim, false), k.row(t)[i]);
        ASSERT_EQ(cache.element(i / c.dim, t, i % c.dim, true), v.row(t)[i]);
      }
    }
  }
}

// Decode and prefill rows, whole caches and shards, several sequences in a batch.
TEST_P(CpuAttentionTest, AttendMatchesTheReference) {
  for (uint64_t seed = 0; seed < random_cases<uint64_t>(200); ++seed) {
    SCOPED_TRACE(seed);
    TestRandom random(seed);
    const AttentionCase c = random_case(random);
    const int shards = random.chance(0.3) ? 2 : 1;
    const CacheShard shard{static_cast<int>(random.integer(0, shards - 1)), shards,
                           static_cast<int>(random.integer(1, 70))};
    std::vector<std::unique_ptr<TestCache>> caches;
    std::vector<AttentionSegment> segments, segments64;
    std::vector<TestTensor<float>> queries;
    int32_t total = 0;
    for (int64_t s = random.integer(1, 3); s > 0; --s) {
      const int64_t tokens = random.integer(1, random.chance(0.05) ? 1200 : 150);
      const auto rows = static_cast<int32_t>(
          random.chance(0.3) ? 1 : random.integer(1, std::min<int64_t>(tokens, 20)));
      const Sequence sequence(random, c, tokens);
      const RowSegment segment{
          rows == 1 ? RowRole::kDecode : RowRole::kPrefill, total, rows, {tokens - rows}};
      total += rows;
      caches.push_back(std::make_unique<TestCache>(c.layout(c.dtype), tokens, shard));
      fill(table_, stream_, sequence.k, sequence.v, *caches.back());
      segments.push_back({segment, caches.back()->view(tokens)});
      caches.push_back(std::make_unique<TestCache>(c.layout(DType::kF64), tokens, shard));
      fill(reference_, stream_, to_double(rounded_to(c.dtype, sequence.k)),
           to_double(rounded_to(c.dtype, sequence.v)), *caches.back());
      segments64.push_back({segment, caches.back()->view(tokens)});
    }
    const auto q = random_tensor<float>(random, Shape{total, c.heads(), c.dim}, 1.0, 2);
    const auto q64 = to_double(q);
    const float scale = 1.0f / std::sqrt(static_cast<float>(c.dim));
    TestPartial<float> result(total, c.heads(), c.dim);
    TestPartial<double> expected(total, c.heads(), c.dim);
    table_.attention.attend(stream_, {q.view(), c.kv_heads, scale, segments, result.view()});
    reference_.attention.attend(stream_,
                                {q64.view(), c.kv_heads, scale, segments64, expected.view()});
    EXPECT_TRUE(all_near(result.out, expected.out, kTolerance));
    EXPECT_TRUE(all_near(result.lse, expected.lse, kTolerance));
  }
}

TEST_P(CpuAttentionTest, AnyChunkAndThreadCountGivesTheSameBits) {
  TestRandom random(2);
  for (const AttentionCase& c :
       {AttentionCase{2, 3, 40, DType::kF32}, AttentionCase{1, 8, 64, DType::kBf16},
        AttentionCase{2, 1, 17, DType::kBf16}}) {
    const Sequence sequence(random, c, 1100);
    const TestCache cache(c.layout(c.dtype), 1100);
    fill(table_, stream_, sequence.k, sequence.v, cache);
    const auto whole = run(table_, stream_, c, sequence.q, cache, 0, 1100);
    for (const int threads : {1, 2, 5}) {
      TestStream stream(threads);
      for (const int64_t piece : {1, 7, 64, 512}) {
        const int64_t first = piece == 1 ? 1050 : piece == 7 ? 700 : 0;
        auto pieces = run(table_, stream, c, sequence.q, cache, first, piece);
        for (int64_t t = 0; t < first; ++t) {
          std::copy_n(whole.out.row(t), whole.out.cols(), pieces.out.row(t));
          std::copy_n(whole.lse.row(t), whole.lse.cols(), pieces.lse.row(t));
        }
        EXPECT_TRUE(pieces.out.same_bits(whole.out)) << threads << " threads, pieces of " << piece;
        EXPECT_TRUE(pieces.lse.same_bits(whole.lse));
      }
    }
  }
}

// A row must not feel keys and values after its own position, even broken ones.
TEST_P(CpuAttentionTest, LaterTokensLeaveNoTrace) {
  TestRandom random(3);
  const AttentionCase c{1, 4, 32, DType::kF32};
  Sequence sequence(random, c, 90);
  const TestCache clean(c.layout(c.dtype), 90);
  fill(table_, stream_, sequence.k, sequence.v, clean);
  const auto expected = run(table_, stream_, c, sequence.q, clean, 0, 90);
  for (int64_t t = 80; t < 90; ++t) {
    for (int64_t i = 0; i < sequence.v.cols(); ++i) {
      sequence.k.row(t)[i] = std::numeric_limits<float>::quiet_NaN();
      sequence.v.row(t)[i] = std::numeric_limits<float>::infinity();
    }
  }
  const TestCache broken(c.layout(c.dtype), 90);
  fill(table_, stream_, sequence.k, sequence.v, broken);
  const auto result = run(table_, stream_, c, sequence.q, broken, 0, 90);
  for (int64_t t = 0; t < 80; ++t) {
    ASSERT_EQ(std::memcmp(result.out.row(t), expected.out.row(t),
                          static_cast<size_t>(result.out.cols()) * sizeof(float)),
              0);
  }
}

TEST_P(CpuAttentionTest, PartialsOfShardsMergeToTheWhole) {
  for (uint64_t seed = 0; seed < random_cases<uint64_t>(60); ++seed) {
    SCOPED_TRACE(seed);
    TestRandom random(seed);
    const AttentionCase c{1, static_cast<int>(random.integer(1, 4)), 24, DType::kF32};
    const int64_t tokens = random.integer(1, 300);
    const Sequence sequence(random, c, tokens);
    const TestCache cache(c.layout(c.dtype), tokens);
    fill(table_, stream_, sequence.k, sequence.v, cache);
    const auto whole = run(table_, stream_, c, sequence.q, cache, 0, tokens);

    const int shards = static_cast<int>(random.integer(2, 4));
    const int interleave = static_cast<int>(random.integer(1, 64));
    std::vector<TestPartial<float>> partials;
    for (int s = 0; s < shards; ++s) {
      const TestCache part(c.layout(c.dtype), tokens, {s, shards, interleave});
      fill(table_, stream_, sequence.k, sequence.v, part);
      partials.push_back(run(table_, stream_, c, sequence.q, part, 0, tokens));
    }
    std::vector<PartialAttention> views;
    for (TestPartial<float>& partial : partials) views.push_back(partial.view());
    table_.attention.merge(stream_, views, views.front());
    TestTensor<double> expected = to_double(whole.out);
    EXPECT_TRUE(all_near(partials.front().out, expected, kTolerance));
    EXPECT_TRUE(all_near(partials.front().lse, to_double(whole.lse), kTolerance));
  }
}

TEST_P(CpuAttentionTest, ARowThatSeesNothingIsZero) {
  TestRandom random(4);
  const AttentionCase c{1, 2, 16, DType::kF32};
  const Sequence sequence(random, c, 3);
  const TestCache cache(c.layout(c.dtype), 3, {1, 2, 2});  // holds position 2 only from token 2 on
  fill(table_, stream_, sequence.k, sequence.v, cache);
  auto result = run(table_, stream_, c, sequence.q, cache, 0, 3);
  for (int h = 0; h < 2; ++h) {
    EXPECT_EQ(result.lse.row(0)[h], -std::numeric_limits<float>::infinity());
    EXPECT_EQ(result.lse.row(1)[h], -std::numeric_limits<float>::infinity());
    EXPECT_EQ(result.out.row(1)[h * 16], 0.0f);
    EXPECT_GT(result.lse.row(2)[h], -100.0f);
  }
  const PartialAttention nothing = result.view();
  table_.attention.merge(stream_, {&nothing, 1}, result.view());
  EXPECT_EQ(result.lse.row(0)[0], -std::numeric_limits<float>::infinity());
  EXPECT_EQ(result.out.row(0)[0], 0.0f);
}

MOTLEY_TEST_EACH_CPU(CpuAttentionTest);

}  // namespace
}  // namespace motley
