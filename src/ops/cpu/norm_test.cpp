// Tolerances: a sum of n squares in float32 is off by at most n/16 roundings in sequence, far below
// the 1e-5 relative allowed; element-wise results carry a handful of roundings of 2^-24 each.
#include "ops/cpu/cpu_test_util.h"
#include "support/random_cases.h"

namespace motley {
namespace {

constexpr double kAbsolute = 1e-6;
constexpr double kRelative = 2e-6;

class CpuNormTest : public CpuOpsTest {};

TEST_P(CpuNormTest, RmsNormMatchesTheReference) {
  for (uint64_t seed = 0; seed < random_cases<uint64_t>(200); ++seed) {
    SCOPED_TRACE(seed);
    TestRandom random(seed);
    const Shape shape{random.integer(1, 9), random.integer(1, 700)};
    const auto x = random_tensor<float>(random, shape, 2.0, random.integer(0, 5));
    const auto weight = random_tensor<float>(random, Shape{shape[1]});
    const RmsNormParams params{.epsilon = 1e-6f, .weight_offset = random.chance(0.5) ? 1.0f : 0.0f};
    TestTensor<float> y(shape, 3);
    table_.norm.rms_norm(stream_, x.view(), weight.view(), params, y.view());
    TestTensor<double> expected(shape);
    reference_.norm.rms_norm(stream_, to_double(x).view(), weight.view(), params, expected.view());
    EXPECT_TRUE(all_near(y, expected, kAbsolute, kRelative));

    TestTensor<float> in_place = x;
    table_.norm.rms_norm(stream_, in_place.view(), weight.view(), params, in_place.view());
    EXPECT_TRUE(in_place.same_bits(y));
  }
}

TEST_P(CpuNormTest, GatedRmsNormMatchesTheReference) {
  for (uint64_t seed = 0; seed < random_cases<uint64_t>(200); ++seed) {
    SCOPED_TRACE(seed);
    TestRandom random(seed);
    const int64_t dim = random.integer(1, 150);
    const Shape shape{random.integer(1, 5), dim * random.integer(1, 6)};
    const auto x = random_tensor<float>(random, shape);
    const auto gate = random_tensor<float>(random, shape, 3.0, 2);
    const auto weight = random_tensor<float>(random, Shape{dim});
    TestTensor<float> y(shape);
    table_.norm.gated_rms_norm(stream_, x.view(), gate.view(), weight.view(), {}, y.view());
    TestTensor<double> expected(shape);
    reference_.norm.gated_rms_norm(stream_, to_double(x).view(), to_double(gate).view(),
                                   weight.view(), {}, expected.view());
    EXPECT_TRUE(all_near(y, expected, kAbsolute, kRelative));
  }
}

TEST_P(CpuNormTest, ElementWiseOpsMatchTheReference) {
  for (uint64_t seed = 0; seed < random_cases<uint64_t>(200); ++seed) {
    SCOPED_TRACE(seed);
    TestRandom random(seed);
    const Shape shape{random.integer(1, 9), random.integer(1, 300)};
    const auto a = random_tensor<float>(random, shape, 4.0, random.integer(0, 3));
    const auto b = random_tensor<float>(random, shape);
    TestTensor<float> sum = b;
    TestTensor<double> expected_sum = to_double(b);
    table_.norm.add(stream_, a.view(), sum.view());
    reference_.norm.add(stream_, to_double(a).view(), expected_sum.view());
    EXPECT_TRUE(all_near(sum, expected_sum, 0, 1e-7));

    TestTensor<float> product(shape);
    TestTensor<double> expected_product(shape);
    const SwigluParams swiglu{random.chance(0.5) ? 1.25f : kNoSwigluLimit};
    table_.norm.silu_multiply(stream_, a.view(), b.view(), swiglu, product.view());
    reference_.norm.silu_multiply(stream_, to_double(a).view(), to_double(b).view(), swiglu,
                                  expected_product.view());
    EXPECT_TRUE(all_near(product, expected_product, 1e-30, kRelative));

    TestTensor<float> gated = b;
    TestTensor<double> expected_gated = to_double(b);
    table_.norm.sigmoid_multiply(stream_, a.view(), gated.view());
    reference_.norm.sigmoid_multiply(stream_, to_double(a).view(), expected_gated.view());
    EXPECT_TRUE(all_near(gated, expected_gated, 1e-30, kRelative));
  }
}

TEST_P(CpuNormTest, OneGatePerRow) {
  TestRandom random(3);
  const auto gate = random_tensor<float>(random, Shape{5, 1});
  TestTensor<float> y = random_tensor<float>(random, Shape{5, 77});
  TestTensor<double> expected = to_double(y);
  table_.norm.sigmoid_multiply(stream_, gate.view(), y.view());
  reference_.norm.sigmoid_multiply(stream_, to_double(gate).view(), expected.view());
  EXPECT_TRUE(all_near(y, expected, 1e-30, kRelative));
}

// Trap 2 of the family: the gate lies behind the query of its own head, not in a second half.
TEST_P(CpuNormTest, GateInterleavedPerHead) {
  TestRandom random(4);
  constexpr int64_t kRows = 3, kHeads = 4, kDim = 37;
  auto query_and_gate = random_tensor<float>(random, Shape{kRows, kHeads, 2 * kDim});
  auto y = random_tensor<float>(random, Shape{kRows, kHeads, kDim});
  const TestTensor<float> before = y;
  ConstTensorView gate = std::as_const(query_and_gate).view();
  gate.data += kDim * sizeof(float);
  table_.norm.sigmoid_multiply(stream_, gate, y.view());
  for (int64_t r = 0; r < kRows; ++r) {
    for (int64_t h = 0; h < kHeads; ++h) {
      for (int64_t i = 0; i < kDim; ++i) {
        const double g = double{query_and_gate.row(r)[h * 2 * kDim + kDim + i]};
        const double want = double{before.row(r)[h * kDim + i]} / (1.0 + std::exp(-g));
        ASSERT_NEAR(y.row(r)[h * kDim + i], want, 1e-6);
      }
    }
  }
}

// The gate is bounded above only, up on both sides; a NaN passes.
TEST_P(CpuNormTest, LimitOfTheGatedUnit) {
  const float nan = std::numeric_limits<float>::quiet_NaN();
  const float gates[] = {12.0f, -30.0f, 1.0f, 1.0f, nan, 1.0f};
  const float ups[] = {1.0f, 1.0f, 14.0f, -14.0f, 1.0f, nan};
  TestTensor<float> gate(Shape{1, 6}), up(Shape{1, 6}), y(Shape{1, 6});
  std::copy(std::begin(gates), std::end(gates), gate.row(0));
  std::copy(std::begin(ups), std::end(ups), up.row(0));
  table_.norm.silu_multiply(stream_, gate.view(), up.view(), {.limit = 10.0f}, y.view());
  const auto silu = [](double x) { return x / (1.0 + std::exp(-x)); };
  EXPECT_NEAR(y.row(0)[0], silu(10), 1e-5);
  EXPECT_NEAR(y.row(0)[1] / silu(-30), 1.0, 1e-5);
  EXPECT_NEAR(y.row(0)[2], 10 * silu(1), 1e-5);
  EXPECT_NEAR(y.row(0)[3], -10 * silu(1), 1e-5);
  EXPECT_TRUE(std::isnan(y.row(0)[4]));
  EXPECT_TRUE(std::isnan(y.row(0)[5]));
}

// Trap 1: zero-centred weights use 1 + w; the plain ones must not.
TEST_P(CpuNormTest, WeightOffsetIsAdded) {
  TestTensor<float> x(Shape{1, 2});
  x.row(0)[0] = 3.0f;
  x.row(0)[1] = -3.0f;
  const TestTensor<float> zero_weight(Shape{2});
  TestTensor<float> y(Shape{1, 2});
  table_.norm.rms_norm(stream_, x.view(), zero_weight.view(), {.weight_offset = 1.0f}, y.view());
  EXPECT_NEAR(y.row(0)[0], 1.0f, 1e-6);
  table_.norm.rms_norm(stream_, x.view(), zero_weight.view(), {.weight_offset = 0.0f}, y.view());
  EXPECT_EQ(y.row(0)[0], 0.0f);
}

TEST_P(CpuNormTest, RowsDoNotDependOnBatchOrThreads) {
  TestRandom random(5);
  const auto x = random_tensor<float>(random, Shape{70, 1000});
  const auto weight = random_tensor<float>(random, Shape{1000});
  TestTensor<float> whole(x.shape());
  table_.norm.rms_norm(stream_, x.view(), weight.view(), {}, whole.view());
  for (const int threads : {1, 5}) {
    TestStream stream(threads);
    TestTensor<float> split(x.shape());
    for (int64_t r = 0; r < 70; r += 7) {
      table_.norm.rms_norm(stream, x.view().slice_rows(r, 7), weight.view(), {},
                           split.view().slice_rows(r, 7));
    }
    EXPECT_TRUE(split.same_bits(whole));
  }
}

TEST_P(CpuNormTest, BiasesAndZeroRowsMatchTheReference) {
  for (uint64_t seed = 0; seed < random_cases<uint64_t>(200); ++seed) {
    SCOPED_TRACE(seed);
    TestRandom random(seed);
    TestTensor<float> y =
        random_tensor<float>(random, Shape{random.integer(1, 9), random.integer(1, 300)}, 1.0, 1);
    TestTensor<double> expected = to_double(y);
    const auto bias = random_tensor<float>(random, Shape{y.cols()});
    const std::vector<int32_t> rows = {static_cast<int32_t>(random.integer(0, y.rows() - 1))};
    table_.norm.add_bias(stream_, bias.view(), y.view());
    reference_.norm.add_bias(stream_, bias.view(), expected.view());
    table_.norm.zero_rows(stream_, rows, y.view());
    reference_.norm.zero_rows(stream_, rows, expected.view());
    EXPECT_TRUE(all_near(y, expected, 1e-6));
    EXPECT_EQ(y.row(rows[0])[0], 0.0f);
  }
}

MOTLEY_TEST_EACH_CPU(CpuNormTest);

}  // namespace
}  // namespace motley
