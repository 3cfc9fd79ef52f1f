#include "ops/cpu/cpu_test_util.h"
#include "support/random_cases.h"

namespace motley {
namespace {

struct HyperCase {
  HyperParams params;
  int64_t hidden = 0;
  TestTensor<float> fn;
  TestTensor<float> base;
  TestTensor<float> scale;
  TestTensor<float> streams;
  TestTensor<float> y;

  HyperWeights weights() const { return {fn.view(), base.view(), scale.view()}; }
  int64_t rows() const { return streams.rows(); }
};

HyperCase random_case(TestRandom& random, int64_t rows) {
  HyperCase test;
  test.params.streams = static_cast<int>(random.chance(0.5) ? 4 : random.integer(1, kMostStreams));
  test.params.sinkhorn_iterations = static_cast<int>(random.integer(1, 20));
  test.params.epsilon = random.chance(0.5) ? 1e-6f : 1e-3f;
  test.hidden = random.integer(1, 90);
  const int64_t n = test.params.streams;
  const int64_t outputs = test.params.coefficients();
  const double by_width = 1.0 / std::sqrt(static_cast<double>(n * test.hidden));
  test.fn = random_tensor<float>(random, Shape{outputs, n * test.hidden}, by_width);
  test.base = random_tensor<float>(random, Shape{outputs});
  test.scale = random_tensor<float>(random, Shape{3});
  test.streams = random_tensor<float>(random, Shape{rows, n, test.hidden}, 3.0, 5);
  test.y = random_tensor<float>(random, Shape{rows, test.hidden}, 1.0, 1);
  return test;
}

class CpuHyperTest : public CpuOpsTest {};

// The coefficients are sums of n * hidden products of size one over their root: 1e-5 is far above
// their rounding and far below what a wrong order of the normalisations does.
TEST_P(CpuHyperTest, MatchesTheReference) {
  for (uint64_t seed = 0; seed < random_cases<uint64_t>(200); ++seed) {
    SCOPED_TRACE(seed);
    TestRandom random(seed);
    HyperCase test = random_case(random, random.integer(1, 19));
    const Shape coefficient_shape{test.rows(), test.params.coefficients()};
    TestTensor<float> coefficients(coefficient_shape), x(test.y.shape(), 3), mean(test.y.shape());
    TestTensor<double> coefficients64(coefficient_shape), x64(test.y.shape()),
        mean64(test.y.shape());
    TestTensor<double> streams64 = to_double(test.streams);
    table_.hyper.mix(stream_, std::as_const(test.streams).view(), test.weights(), test.params,
                     coefficients.view(), x.view());
    reference_.hyper.mix(stream_, std::as_const(streams64).view(), test.weights(), test.params,
                         coefficients64.view(), x64.view());
    EXPECT_TRUE(all_near(coefficients, coefficients64, 1e-5, 1e-5));
    EXPECT_TRUE(all_near(x, x64, 1e-4, 1e-5));
    table_.hyper.merge(stream_, std::as_const(test.y).view(), std::as_const(coefficients).view(),
                       test.streams.view());
    const TestTensor<double> y64 = to_double(test.y);
    reference_.hyper.merge(stream_, y64.view(), std::as_const(coefficients64).view(),
                           streams64.view());
    EXPECT_TRUE(all_near(test.streams, streams64, 1e-4, 1e-5));
    table_.hyper.mean(stream_, std::as_const(test.streams).view(), mean.view());
    reference_.hyper.mean(stream_, std::as_const(streams64).view(), mean64.view());
    EXPECT_TRUE(all_near(mean, mean64, 1e-4, 1e-5));
    table_.hyper.spread(stream_, std::as_const(mean).view(), test.streams.view());
    for (int64_t i = 0; i < test.streams.cols(); ++i) {
      ASSERT_EQ(test.streams.row(0)[i], mean.row(0)[i % test.hidden]);
    }
  }
}

// Trap 11 of the family, by hand with two streams of one element and one iteration: the softmax is
// over the second index, the sums over the first, and C is applied transposed.
TEST_P(CpuHyperTest, TwoStreamsByHand) {
  HyperParams params{.streams = 2, .sinkhorn_iterations = 1, .norm_epsilon = 0, .epsilon = 0.01f};
  TestTensor<float> fn(Shape{8, 2}), base(Shape{8}), scale(Shape{3}), streams(Shape{1, 2, 1});
  TestTensor<float> coefficients(Shape{1, 8}), x(Shape{1, 1}), y(Shape{1, 1});
  streams.row(0)[0] = 3.0f;
  streams.row(0)[1] = -1.0f;
  y.row(0)[0] = 10.0f;
  fn.row(0)[0] = 1.0f;  // m_0 = 3 / sqrt(5)
  for (int i = 0; i < 3; ++i) scale.row(i)[0] = 0.5f * static_cast<float>(i + 1);
  const float bases[] = {0.1f, 0.2f, 0.3f, 0.4f, 1.0f, 0.0f, 0.0f, 2.0f};
  for (int i = 0; i < 8; ++i) base.row(i)[0] = bases[i];
  table_.hyper.mix(
      stream_, std::as_const(streams).view(),
      {std::as_const(fn).view(), std::as_const(base).view(), std::as_const(scale).view()}, params,
      coefficients.view(), x.view());
  const auto sigmoid = [](double v) { return 1 / (1 + std::exp(-v)); };
  const double pre[] = {sigmoid(0.5 * 3 / std::sqrt(5.0) + double{bases[0]}) + 0.01,
                        sigmoid(double{bases[1]}) + 0.01};
  const double post[] = {2 * sigmoid(double{bases[2]}), 2 * sigmoid(double{bases[3]})};
  double c[2][2] = {{sigmoid(1) + 0.01, sigmoid(-1) + 0.01},
                    {sigmoid(-2) + 0.01, sigmoid(2) + 0.01}};
  for (int j = 0; j < 2; ++j) {
    const double sum = c[0][j] + c[1][j] + 0.01;
    for (auto& row : c) row[j] /= sum;
  }
  EXPECT_NEAR(x.row(0)[0], 3 * pre[0] - pre[1], 1e-5);
  table_.hyper.merge(stream_, std::as_const(y).view(), std::as_const(coefficients).view(),
                     streams.view());
  for (int j = 0; j < 2; ++j) {
    EXPECT_NEAR(streams.row(0)[j], 10 * post[j] + 3 * c[0][j] - c[1][j], 1e-5) << j;
  }
}

TEST_P(CpuHyperTest, RowsDoNotDependOnBatchOrThreads) {
  TestRandom random(5);
  HyperCase test = random_case(random, 61);
  const Shape shape{61, test.params.coefficients()};
  TestTensor<float> coefficients(shape), x(test.y.shape());
  const TestTensor<float> before = test.streams;
  const auto run = [&](Stream& stream, int64_t step, TestTensor<float>* c, TestTensor<float>* mixed,
                       TestTensor<float>* streams) {
    for (int64_t r = 0; r < 61; r += step) {
      const int64_t rows = std::min(step, 61 - r);
      const TensorView part = streams->view().slice_rows(r, rows);
      table_.hyper.mix(stream, part, test.weights(), test.params, c->view().slice_rows(r, rows),
                       mixed->view().slice_rows(r, rows));
      table_.hyper.merge(stream, test.y.view().slice_rows(r, rows), c->view().slice_rows(r, rows),
                         part);
    }
  };
  run(stream_, 61, &coefficients, &x, &test.streams);
  for (const int threads : {1, 5}) {
    for (const int64_t step : {1, 2, 7, 16}) {
      TestStream stream(threads);
      TestTensor<float> c(shape), mixed(x.shape()), streams = before;
      run(stream, step, &c, &mixed, &streams);
      EXPECT_TRUE(c.same_bits(coefficients) && mixed.same_bits(x) &&
                  streams.same_bits(test.streams))
          << threads << " threads, " << step << " rows a call";
    }
  }
}

MOTLEY_TEST_EACH_CPU(CpuHyperTest);

}  // namespace
}  // namespace motley
