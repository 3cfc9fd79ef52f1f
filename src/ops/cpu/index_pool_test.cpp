// Tolerance: shares sum to one, so a pooled key is a mean of normal values with a few roundings of
// 2^-24 and an exponential's two units each.
#include "ops/cpu/cpu_test_util.h"
#include "support/random_cases.h"

namespace motley {
namespace {

struct Tokens {
  TestTensor<float> k;
  TestTensor<float> gate;
  TestTensor<float> ape;
  int64_t pool() const { return ape.rows(); }
  int64_t dim() const { return ape.cols(); }
};

Tokens random_tokens(TestRandom& random, int64_t rows, int64_t pool, int64_t dim) {
  return {.k = random_tensor<float>(random, Shape{rows, dim}, 1.0, 3),
          .gate = random_tensor<float>(random, Shape{rows, dim}, 2.0, 1),
          .ape = random_tensor<float>(random, Shape{pool, dim})};
}

template <typename T>
TestTensor<T> empty_ring(const Tokens& tokens) {
  return TestTensor<T>(Shape{index_ring_rows(tokens.pool()), 2 * tokens.dim()}, 2);
}

int64_t total_pools(std::span<const RowSegment> rows, int64_t pool) {
  int64_t total = 0;
  for (const RowSegment& segment : rows) total += completed_pools(segment, pool).count;
  return total;
}

// Keys of the pools that tokens [first, first + rows) of one sequence complete.
TestTensor<float> pool_rows(const OpTable& table, Stream& stream, const Tokens& tokens,
                            int64_t first, int64_t rows, TestTensor<float>* ring) {
  const IndexPoolSegment segment{
      {RowRole::kPrefill, static_cast<int32_t>(first), static_cast<int32_t>(rows), {first}},
      ring->view()};
  TestTensor<float> keys(Shape{completed_pools(segment.rows, tokens.pool()).count, tokens.dim()});
  table.index_pool.pool_keys(stream, tokens.k.view(), tokens.gate.view(), tokens.ape.view(),
                             {&segment, 1}, keys.view());
  return keys;
}

class CpuIndexPoolTest : public CpuOpsTest {};

TEST_P(CpuIndexPoolTest, MatchesTheReference) {
  for (uint64_t seed = 0; seed < random_cases<uint64_t>(200); ++seed) {
    SCOPED_TRACE(seed);
    TestRandom random(seed);
    const int64_t pool = random.integer(1, 17);
    const int64_t dim = random.integer(1, 140);
    std::vector<RowSegment> rows;
    int32_t total = 0;
    for (int64_t s = random.integer(1, 3); s > 0; --s) {
      // Starts in the middle of a pool are the rule; no row at all is allowed.
      const auto count = static_cast<int32_t>(random.integer(0, 40));
      rows.push_back({RowRole::kPrefill, total, count, {random.integer(0, 500)}});
      total += count;
    }
    const Tokens tokens = random_tokens(random, std::max(total, 1), pool, dim);
    const auto k64 = to_double(tokens.k);
    const auto gate64 = to_double(tokens.gate);
    std::vector<TestTensor<float>> rings;
    std::vector<TestTensor<double>> rings64;
    std::vector<IndexPoolSegment> work, work64;
    for (size_t s = 0; s < rows.size(); ++s) {
      rings.push_back(random_tensor<float>(random, Shape{index_ring_rows(pool), 2 * dim}));
      rings64.push_back(to_double(rings.back()));
    }
    for (size_t s = 0; s < rows.size(); ++s) {
      work.push_back({rows[s], rings[s].view()});
      work64.push_back({rows[s], rings64[s].view()});
    }
    const Shape shape{total_pools(rows, pool), dim};
    TestTensor<float> keys(shape, 1);
    TestTensor<double> expected(shape);
    table_.index_pool.pool_keys(stream_, tokens.k.view(), tokens.gate.view(), tokens.ape.view(),
                                work, keys.view());
    reference_.index_pool.pool_keys(stream_, k64.view(), gate64.view(), tokens.ape.view(), work64,
                                    expected.view());
    EXPECT_TRUE(all_near(keys, expected, 5e-6, 5e-6));
    for (size_t s = 0; s < rows.size(); ++s) EXPECT_TRUE(all_near(rings[s], rings64[s], 0));
  }
}

// By hand: two tokens of two channels, gates ln 3 apart in the first and equal after ape in the
// second.
TEST_P(CpuIndexPoolTest, TwoTokensByHand) {
  Tokens tokens{TestTensor<float>(Shape{2, 2}), TestTensor<float>(Shape{2, 2}),
                TestTensor<float>(Shape{2, 2})};
  tokens.k.row(0)[0] = 4.0f;
  tokens.k.row(1)[0] = 8.0f;
  tokens.gate.row(1)[0] = std::log(3.0f);
  tokens.k.row(0)[1] = -2.0f;
  tokens.k.row(1)[1] = 6.0f;
  tokens.gate.row(0)[1] = 1.5f;
  tokens.ape.row(1)[1] = 1.5f;
  auto ring = empty_ring<float>(tokens);
  const auto keys = pool_rows(table_, stream_, tokens, 0, 2, &ring);
  EXPECT_NEAR(keys.row(0)[0], 7.0f, 1e-5);
  EXPECT_NEAR(keys.row(0)[1], 2.0f, 1e-5);
}

// Trap 13 of the family: the open pool survives the border of a chunk. A chunk may begin and end
// anywhere in a pool, and longer ones than the ring keep their last rows only.
TEST_P(CpuIndexPoolTest, AnyChunkGivesTheSameBits) {
  TestRandom random(1);
  for (const int64_t pool : {1, 2, 4, 16}) {
    const Tokens tokens = random_tokens(random, 150, pool, 75);
    auto ring = empty_ring<float>(tokens);
    const auto whole = pool_rows(table_, stream_, tokens, 0, 150, &ring);
    for (const int threads : {1, 5}) {
      TestStream stream(threads);
      for (const int64_t step : {1, 2, 3, 7, 64}) {
        auto other = empty_ring<float>(tokens);
        int64_t next = 0;
        for (int64_t t = 0; t < 150; t += step) {
          const auto keys = pool_rows(table_, stream, tokens, t, std::min(step, 150 - t), &other);
          for (int64_t r = 0; r < keys.rows(); ++r, ++next) {
            ASSERT_EQ(std::memcmp(keys.row(r), whole.row(next), 75 * sizeof(float)), 0)
                << "pool of " << pool << ", key " << next << ", step " << step;
          }
        }
        EXPECT_EQ(next, 150 / pool);
        EXPECT_TRUE(other.same_bits(ring)) << step;
      }
    }
  }
}

// Rows that are taken back leave no trace, up to the ring's spare ones: the next rows are what they
// would have been.
TEST_P(CpuIndexPoolTest, CutBackSequencesGoOnAsIfNothingHadBeen) {
  TestRandom random(2);
  const int64_t pool = 4;
  const Tokens tokens = random_tokens(random, 64, pool, 20);
  Tokens refused = random_tokens(random, 64, pool, 20);
  refused.ape = tokens.ape;
  for (int64_t length = 8; length < 24; ++length) {
    for (int64_t back = 1; back <= kIndexRingSpare; ++back) {
      auto plain = empty_ring<float>(tokens);
      (void)pool_rows(table_, stream_, tokens, 0, length, &plain);
      auto drafted = plain;
      (void)pool_rows(table_, stream_, refused, length, back, &drafted);
      for (int64_t t = length; t < length + 12; t += 3) {
        const auto expected = pool_rows(table_, stream_, tokens, t, 3, &plain);
        const auto keys = pool_rows(table_, stream_, tokens, t, 3, &drafted);
        ASSERT_TRUE(keys.same_bits(expected)) << length << ", " << back << " taken back";
      }
    }
  }
}

TEST_P(CpuIndexPoolTest, PoolsDoNotDependOnCompany) {
  TestRandom random(3);
  const Tokens tokens = random_tokens(random, 40, 4, 33);
  const std::vector<RowSegment> rows = {{RowRole::kDecode, 0, 1, {3}},
                                        {RowRole::kDecode, 1, 1, {8}},
                                        {RowRole::kPrefill, 2, 38, {101}}};
  std::vector<TestTensor<float>> rings, alone;
  for (size_t s = 0; s < rows.size(); ++s) {
    rings.push_back(random_tensor<float>(random, Shape{index_ring_rows(4), 66}));
  }
  alone = rings;
  std::vector<IndexPoolSegment> work;
  for (size_t s = 0; s < rows.size(); ++s) work.push_back({rows[s], rings[s].view()});
  TestTensor<float> keys(Shape{total_pools(rows, 4), 33});
  table_.index_pool.pool_keys(stream_, tokens.k.view(), tokens.gate.view(), tokens.ape.view(), work,
                              keys.view());
  int64_t next = 0;
  for (size_t s = 0; s < rows.size(); ++s) {
    const IndexPoolSegment segment{rows[s], alone[s].view()};
    const int64_t count = completed_pools(rows[s], 4).count;
    TestTensor<float> own(Shape{count, 33});
    table_.index_pool.pool_keys(stream_, tokens.k.view(), tokens.gate.view(), tokens.ape.view(),
                                {&segment, 1}, own.view());
    for (int64_t r = 0; r < count; ++r, ++next) {
      EXPECT_EQ(std::memcmp(own.row(r), keys.row(next), 33 * sizeof(float)), 0) << next;
    }
    EXPECT_TRUE(alone[s].same_bits(rings[s]));
  }
  EXPECT_EQ(next, 1 + 0 + 9);
}

// Traps of the family: the tail is the open pool, which is none where a pool has just been
// completed, so that a row need not see its own token; and without the tail a row may see nothing.
TEST(PoolTokens, TailIsTheOpenPoolAlone) {
  TestStream stream;
  TestTensor<int32_t> pools(Shape{9, 2}), counts(Shape{9});
  for (int32_t t = 0; t < 9; ++t) {
    pools.row(t)[0] = 0;
    pools.row(t)[1] = 1;
    counts.row(t)[0] = t == 8 ? 1 : std::min(2, (t + 1) / 3);
  }
  pools.row(8)[0] = 1;
  const RowSegment rows{RowRole::kPrefill, 0, 9, {0}};
  const auto expand = [&](bool tail) {
    TestTensor<int32_t> positions(Shape{9, pool_tokens_width(2, 3, tail)}), token_counts(Shape{9});
    host_pool_tokens(stream, {.pools = std::as_const(pools).view(),
                              .counts = std::as_const(counts).view(),
                              .pool = 3,
                              .tail = tail,
                              .segments = {&rows, 1},
                              .positions = positions.view(),
                              .token_counts = token_counts.view()});
    std::vector<std::vector<int32_t>> seen;
    for (int64_t t = 0; t < 9; ++t) {
      const int32_t count = token_counts.row(t)[0];
      seen.emplace_back(positions.row(t), positions.row(t) + count);
      for (int64_t i = count; i < positions.cols(); ++i) EXPECT_EQ(positions.row(t)[i], -1);
    }
    return seen;
  };
  const auto with = expand(true);
  EXPECT_EQ(with[0], (std::vector<int32_t>{0}));
  EXPECT_EQ(with[2], (std::vector<int32_t>{0, 1, 2}));
  EXPECT_EQ(with[7], (std::vector<int32_t>{0, 1, 2, 3, 4, 5, 6, 7}));
  EXPECT_EQ(with[8], (std::vector<int32_t>{3, 4, 5})) << "its own pool lost: token 8 is not seen";
  const auto without = expand(false);
  EXPECT_TRUE(without[1].empty());
  EXPECT_EQ(without[4], (std::vector<int32_t>{0, 1, 2}));
  EXPECT_EQ(without[5], (std::vector<int32_t>{0, 1, 2, 3, 4, 5}));
}

// A segment in the middle of the batch, at a position far from its row.
TEST(PoolTokens, PositionsAreThoseOfTheSequence) {
  TestStream stream;
  TestTensor<int32_t> pools(Shape{3, 1}), counts(Shape{3});
  TestTensor<int32_t> positions(Shape{3, pool_tokens_width(1, 4, true)}), token_counts(Shape{3});
  pools.row(1)[0] = 24;
  counts.row(1)[0] = 1;
  token_counts.row(0)[0] = 77;
  const RowSegment rows{RowRole::kDecode, 1, 1, {101}};
  host_pool_tokens(stream, {.pools = std::as_const(pools).view(),
                            .counts = std::as_const(counts).view(),
                            .pool = 4,
                            .segments = {&rows, 1},
                            .positions = positions.view(),
                            .token_counts = token_counts.view()});
  const std::vector<int32_t> seen(positions.row(1), positions.row(1) + positions.cols());
  EXPECT_EQ(seen, (std::vector<int32_t>{96, 97, 98, 99, 100, 101, -1}));
  EXPECT_EQ(token_counts.row(1)[0], 6);
  EXPECT_EQ(token_counts.row(0)[0], 77);
}

MOTLEY_TEST_EACH_CPU(CpuIndexPoolTest);

}  // namespace
}  // namespace motley
