// Tolerance: kernel products and a silu, a few roundings of 2^-24 of the largest term each.
#include "ops/cpu/cpu_test_util.h"
#include "support/random_cases.h"

namespace motley {
namespace {

class CpuConvolutionTest : public CpuOpsTest {
 protected:
  // Runs the rows of one sequence in pieces of `piece` with this table; returns the final window.
  template <typename T>
  static TestTensor<T> run(const OpTable& table, Stream& stream, const TestTensor<T>& u,
                           const TestTensor<float>& weight, TestTensor<T> window, int64_t piece,
                           TestTensor<T>* y) {
    for (int64_t t = 0; t < u.rows(); t += piece) {
      const auto rows = static_cast<int32_t>(std::min(piece, u.rows() - t));
      const ConvolutionSegment segment{{RowRole::kPrefill, static_cast<int32_t>(t), rows, {t}},
                                       window.view()};
      table.convolution.causal_convolution(stream, u.view(), weight.view(), {&segment, 1},
                                           y->view());
    }
    return window;
  }
};

TEST_P(CpuConvolutionTest, MatchesTheReference) {
  for (uint64_t seed = 0; seed < random_cases<uint64_t>(200); ++seed) {
    SCOPED_TRACE(seed);
    TestRandom random(seed);
    const int64_t channels = random.integer(1, 600);
    const int64_t kernel = random.integer(2, 6);
    const auto segments = static_cast<int32_t>(random.integer(1, 3));
    std::vector<RowSegment> rows;
    int32_t total = 0;
    for (int32_t s = 0; s < segments; ++s) {
      const auto count = static_cast<int32_t>(random.integer(1, 9));
      rows.push_back({RowRole::kPrefill, total, count, {random.integer(0, 1000)}});
      total += count;
    }
    const auto u = random_tensor<float>(random, Shape{total, channels}, 1.0, 4);
    const auto u64 = to_double(u);
    const auto weight = random_tensor<float>(random, Shape{channels, kernel});
    std::vector<TestTensor<float>> windows;
    std::vector<TestTensor<double>> windows64;
    for (int32_t s = 0; s < segments; ++s) {
      windows.push_back(random_tensor<float>(random, Shape{kernel - 1, channels}));
      windows64.push_back(to_double(windows.back()));
    }
    std::vector<ConvolutionSegment> work, work64;
    for (size_t s = 0; s < rows.size(); ++s) {
      work.push_back({rows[s], windows[s].view()});
      work64.push_back({rows[s], windows64[s].view()});
    }
    TestTensor<float> y(u.shape(), 1);
    TestTensor<double> expected(u.shape());
    table_.convolution.causal_convolution(stream_, u.view(), weight.view(), work, y.view());
    reference_.convolution.causal_convolution(stream_, u64.view(), weight.view(), work64,
                                              expected.view());
    EXPECT_TRUE(all_near(y, expected, 2e-6, 2e-6));
    for (size_t s = 0; s < rows.size(); ++s) EXPECT_TRUE(all_near(windows[s], windows64[s], 0));
  }
}

TEST_P(CpuConvolutionTest, AnyChunkGivesTheSameBits) {
  TestRandom random(1);
  const auto u = random_tensor<float>(random, Shape{150, 333});
  const auto weight = random_tensor<float>(random, Shape{333, 4});
  const TestTensor<float> window(Shape{3, 333});
  TestTensor<float> whole(u.shape());
  const auto end = run(table_, stream_, u, weight, window, 150, &whole);
  for (const int threads : {1, 5}) {
    TestStream stream(threads);
    for (const int64_t piece : {1, 2, 7, 64}) {
      TestTensor<float> y(u.shape());
      EXPECT_TRUE(run(table_, stream, u, weight, window, piece, &y).same_bits(end));
      EXPECT_TRUE(y.same_bits(whole)) << piece;
    }
  }
}

// Trap 5 of the family: the window holds inputs before the activation.
TEST_P(CpuConvolutionTest, WindowHoldsTheLastInputs) {
  TestRandom random(2);
  const auto u = random_tensor<float>(random, Shape{9, 40});
  const auto weight = random_tensor<float>(random, Shape{40, 4});
  TestTensor<float> y(u.shape());
  const auto window = run(table_, stream_, u, weight, TestTensor<float>(Shape{3, 40}), 2, &y);
  for (int64_t t = 0; t < 3; ++t) {
    for (int64_t c = 0; c < 40; ++c) ASSERT_EQ(window.row(t)[c], u.row(6 + t)[c]);
  }
}

MOTLEY_TEST_EACH_CPU(CpuConvolutionTest);

}  // namespace
}  // namespace motley
