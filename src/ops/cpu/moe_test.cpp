#include "ops/cpu/cpu_test_util.h"
#include "support/random_cases.h"

namespace motley {
namespace {

template <typename T>
struct TestRouting {
  TestRouting(int64_t rows, int64_t slots)
      : experts(Shape{rows, slots}), weights(experts.shape()) {}
  Routing view() { return {experts.view(), weights.view()}; }
  TestTensor<int32_t> experts;
  TestTensor<T> weights;
};

class CpuMoeTest : public CpuOpsTest {};

// Weights carry an exponential and a division: 1e-6 relative.
TEST_P(CpuMoeTest, RoutingMatchesTheReference) {
  for (uint64_t seed = 0; seed < random_cases<uint64_t>(200); ++seed) {
    SCOPED_TRACE(seed);
    TestRandom random(seed);
    const int64_t experts = random.integer(1, 520);
    const auto slots = static_cast<int>(random.integer(1, std::min<int64_t>(experts, 12)));
    const int64_t rows = random.integer(1, 6);
    const RoutingParams params{slots, random.chance(0.7)};
    const auto logits = random_tensor<float>(random, Shape{rows, experts}, 3.0, 1);
    TestTensor<int32_t> forced(Shape{rows, slots});
    for (int64_t r = 0; r < rows; ++r) {
      const bool is_forced = random.chance(0.3);
      for (int slot = 0; slot < slots; ++slot) {
        forced.row(r)[slot] = is_forced ? static_cast<int32_t>(experts - 1 - slot) : -1;
      }
    }
    const ConstTensorView forced_view =
        random.chance(0.5) ? std::as_const(forced).view() : ConstTensorView{};
    TestRouting<float> routing(rows, slots);
    TestRouting<double> expected(rows, slots);
    table_.moe.route_softmax(stream_, logits.view(), params, forced_view, routing.view());
    reference_.moe.route_softmax(stream_, to_double(logits).view(), params, forced_view,
                                 expected.view());
    EXPECT_TRUE(routing.experts.same_bits(expected.experts));
    EXPECT_TRUE(all_near(routing.weights, expected.weights, 1e-30, 2e-6));
  }
}

TEST_P(CpuMoeTest, TiesGoToTheLowerIndexAndIdsAscend) {
  TestTensor<float> logits(Shape{1, 8});
  for (const int e : {1, 4, 6, 7}) logits.row(0)[e] = 2.0f;
  TestRouting<float> routing(1, 3);
  table_.moe.route_softmax(stream_, logits.view(), {3, true}, {}, routing.view());
  EXPECT_EQ(routing.experts.row(0)[0], 1);
  EXPECT_EQ(routing.experts.row(0)[1], 4);
  EXPECT_EQ(routing.experts.row(0)[2], 6);
  EXPECT_NEAR(routing.weights.row(0)[0], 1.0 / 3, 1e-6);
}

// Broken logits must not yield ids that index past the experts or name one twice.
TEST_P(CpuMoeTest, NotANumberStillChoosesDistinctExperts) {
  TestTensor<float> logits(Shape{1, 6});
  for (int e = 0; e < 6; ++e) logits.row(0)[e] = std::numeric_limits<float>::quiet_NaN();
  TestRouting<float> routing(1, 4);
  table_.moe.route_softmax(stream_, logits.view(), {4, true}, {}, routing.view());
  for (int slot = 1; slot < 4; ++slot) {
    EXPECT_LT(routing.experts.row(0)[slot - 1], routing.experts.row(0)[slot]);
  }
  EXPECT_LT(routing.experts.row(0)[3], 6);
}

TEST_P(CpuMoeTest, CombineMatchesTheReference) {
  for (uint64_t seed = 0; seed < random_cases<uint64_t>(200); ++seed) {
    SCOPED_TRACE(seed);
    TestRandom random(seed);
    const int64_t rows = random.integer(1, 6);
    const int64_t slots = random.integer(1, 10);
    const int64_t dim = random.integer(1, 400);
    const auto pairs = random_tensor<float>(random, Shape{rows * slots, dim}, 1.0, 2);
    TestRouting<float> routing(rows, slots);
    routing.weights.fill_normal(random);
    TestRouting<double> routing64(rows, slots);
    routing64.weights = to_double(routing.weights);
    TestTensor<float> y = random_tensor<float>(random, Shape{rows, dim});
    TestTensor<double> expected = to_double(y);
    const bool has_shared = random.chance(0.5);
    table_.moe.combine(stream_, pairs.view(), routing.view(),
                       has_shared ? std::as_const(y).view() : ConstTensorView{}, y.view());
    const auto shared = std::as_const(expected).view();
    reference_.moe.combine(stream_, to_double(pairs).view(), routing64.view(),
                           has_shared ? shared : ConstTensorView{}, expected.view());
    // Ten terms of size one: at most eleven roundings of 2^-24 of a sum below thirty.
    EXPECT_TRUE(all_near(y, expected, 1e-5));
  }
}

MOTLEY_TEST_EACH_CPU(CpuMoeTest);

}  // namespace
}  // namespace motley
