#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>

#include "base/owned_context.h"
#include "ops/cpu/linear_test_util.h"
#include "ops/reference/reference_math.h"
#include "ops/reference/reference_ops.h"
#include "support/random_cases.h"

namespace motley {
namespace {

constexpr NumericProfile kProfiles[] = {NumericProfile::kExact, NumericProfile::kFast};

struct ExpertMatrices {
  TestMatrix gate;
  TestMatrix up;
  TestMatrix down;
};

struct ExpertsCase {
  std::vector<ExpertMatrices> matrices;
  std::vector<ExpertWeights> weights;
  std::vector<std::vector<int32_t>> pairs;  // per expert
  std::vector<ExpertWork> work;
  TestRows<float> x{0, 0};
  RowCounts counts;
  int experts_per_token = 1;
  SwigluParams swiglu;
  ExpertParams params() const { return {experts_per_token, swiglu}; }
  int64_t hidden_size = 0;
  int64_t intermediate = 0;
};

void choose_experts(TestRng& rng, ExpertsCase& test, size_t experts) {
  test.pairs.assign(experts, {});
  std::vector<size_t> order(experts);
  std::iota(order.begin(), order.end(), size_t{0});
  for (int32_t row = 0; row < test.counts.total(); ++row) {
    std::shuffle(order.begin(), order.end(), rng);
    for (int32_t slot = 0; slot < test.experts_per_token; ++slot) {
      test.pairs[order[static_cast<size_t>(slot)]].push_back(row * test.experts_per_token + slot);
    }
  }
}

ExpertsCase random_case(TestRng& rng) {
  ExpertsCase test;
  const auto experts = static_cast<size_t>(uniform(rng, 1, 7));
  test.experts_per_token = static_cast<int>(uniform(rng, 1, static_cast<int64_t>(experts)));
  if (uniform(rng, 0, 1) == 0) test.swiglu.limit = 0.25f;  // bounds about a third of all values
  test.hidden_size = 128 * uniform(rng, 1, 3);
  test.intermediate = 128 * uniform(rng, 1, 2);
  const int64_t rows = uniform(rng, 0, 3) == 0 ? uniform(rng, 1, 70) : uniform(rng, 1, 8);
  test.counts.decode = std::clamp<int64_t>(uniform(rng, -rows, 2 * rows), 0, rows);
  test.counts.prefill = rows - test.counts.decode;
  test.x = TestRows<float>(rows, test.hidden_size, 1);
  for (float& value : test.x.storage) value = 0.3f * normal(rng);
  choose_experts(rng, test, experts);
  const TestFormat gate = random_format(rng);
  const TestFormat up = uniform(rng, 0, 2) == 0 ? random_format(rng) : gate;
  const TestFormat down = random_format(rng);
  for (size_t i = 0; i < experts; ++i) {
    test.matrices.push_back({TestMatrix(rng, gate, test.intermediate, test.hidden_size),
                             TestMatrix(rng, up, test.intermediate, test.hidden_size),
                             TestMatrix(rng, down, test.hidden_size, test.intermediate)});
    const ExpertMatrices& made = test.matrices.back();
    test.weights.push_back({made.gate.view, made.up.view, made.down.view});
  }
  for (size_t i = 0; i < experts; ++i) test.work.push_back({&test.weights[i], test.pairs[i]});
  return test;
}

TestRows<float> run(const LinearKernels& kernels, NumericProfile profile, ExpertsCase& test,
                    int threads, std::span<const ExpertWork> work) {
  OwnedContext context({threads, false});
  HostStream stream(context.get());
  TestRows<float> y(test.counts.total() * test.experts_per_token, test.hidden_size, 2);
  run_experts(kernels, matrix_arithmetic(profile), stream, test.x.view, test.counts, test.params(),
              work, y.view);
  return y;
}

struct Dot {
  double value = 0;
  double magnitude = 0;  // sum of |w x|
};

class Decoded {
 public:
  explicit Decoded(const WeightMatrix& weights)
      : cols_(weights.cols), values_(static_cast<size_t>(weights.rows * weights.cols)) {
    for (int64_t n = 0; n < weights.rows; ++n) decode_row(weights, n, values_.data() + n * cols_);
  }
  Dot dot(int64_t row, const double* x) const {
    Dot result;
    for (int64_t k = 0; k < cols_; ++k) {
      const double product = values_[static_cast<size_t>(row * cols_ + k)] * x[k];
      result.value += product;
      result.magnitude += std::fabs(product);
    }
    return result;
  }

 private:
  int64_t cols_;
  std::vector<double> values_;
};

// The result in float64 and a bound of the error of each output: the bounds of the three products
// (ops/linear.h), carried through silu(g) * u, whose slope is at most 1.1 in g. A limit changes no
// bound: it brings values nearer to each other.
struct Expected {
  TestRows<double> y;
  TestRows<double> error;
};

Expected expect(ExpertsCase& test, NumericProfile profile) {
  Expected result{TestRows<double>(test.counts.total() * test.experts_per_token, test.hidden_size),
                  TestRows<double>(test.counts.total() * test.experts_per_token, test.hidden_size)};
  OwnedContext context({1, false});
  HostStream stream(context.get());
  TestRows<double> wide = widen(test.x);
  reference_experts()(stream, wide.view, test.counts, test.params(), test.work, result.y.view);
  const double in_factor = error_factor(profile, test.hidden_size);
  const double out_factor = error_factor(profile, test.intermediate);
  for (const ExpertWork& item : test.work) {
    const Decoded gate(item.weights->gate);
    const Decoded up(item.weights->up);
    const Decoded down(item.weights->down);
    for (const int32_t pair : item.pairs) {
      const double* x = wide.view.row<double>(pair / test.experts_per_token);
      std::vector<double> hidden;
      std::vector<double> hidden_error;
      for (int64_t n = 0; n < test.intermediate; ++n) {
        const Dot g = gate.dot(n, x);
        const Dot u = up.dot(n, x);
        const double limit = test.swiglu.limit;
        const double silu = reference_silu(std::min(g.value, limit));
        const double bounded_up = std::clamp(u.value, -limit, limit);
        const double gate_error = 1.1 * in_factor * g.magnitude;
        const double up_error = in_factor * u.magnitude;
        hidden.push_back(silu * bounded_up);
        hidden_error.push_back(gate_error * std::fabs(bounded_up) + std::fabs(silu) * up_error +
                               gate_error * up_error + 0x1p-20 * std::fabs(hidden.back()));
      }
      for (int64_t n = 0; n < test.hidden_size; ++n) {
        result.error.at(pair, n) = out_factor * down.dot(n, hidden.data()).magnitude +
                                   (1 + out_factor) * down.dot(n, hidden_error.data()).magnitude;
      }
    }
  }
  return result;
}

TEST(Experts, WithinBoundsOfTheReference) {
  TestRng rng(20260102);
  for (int i = 0; i < random_cases(200); ++i) {
    ExpertsCase test = random_case(rng);
    const NumericProfile profile = kProfiles[i % 2];
    Expected expected = expect(test, profile);
    for (const KernelSet& set : testable_kernels()) {
      TestRows<float> y = run(set.kernels, profile, test, 2, test.work);
      for (int64_t pair = 0; pair < y.view.rows(); ++pair) {
        for (int64_t n = 0; n < test.hidden_size; ++n) {
          ASSERT_LE(std::fabs(y.at(pair, n) - expected.y.at(pair, n)), expected.error.at(pair, n))
              << set.name << " case " << i << " pair " << pair << " output " << n;
        }
      }
    }
  }
}

bool same_storage(const TestRows<float>& a, const TestRows<float>& b) {
  return std::memcmp(a.storage.data(), b.storage.data(), a.storage.size() * sizeof(float)) == 0;
}

TEST(Experts, BitsDoNotDependOnThreadsOrWaves) {
  TestRng rng(4);
  for (int i = 0; i < random_cases(40); ++i) {
    ExpertsCase test = random_case(rng);
    const NumericProfile profile = kProfiles[i % 2];
    for (const KernelSet& set : testable_kernels()) {
      const TestRows<float> whole = run(set.kernels, profile, test, 1, test.work);
      EXPECT_TRUE(same_storage(whole, run(set.kernels, profile, test, 5, test.work)));
      // One expert at a time, last first: the pairs of the others must keep their contents.
      OwnedContext context({2, false});
      HostStream stream(context.get());
      TestRows<float> waves(whole.view.rows(), test.hidden_size, 2);
      for (size_t item = test.work.size(); item-- > 0;) {
        run_experts(set.kernels, matrix_arithmetic(profile), stream, test.x.view, test.counts,
                    test.params(), {&test.work[item], 1}, waves.view);
      }
      EXPECT_TRUE(same_storage(whole, waves)) << set.name << " case " << i;
    }
  }
}

TEST(Experts, ARowAloneHasTheBitsOfTheBatch) {
  TestRng rng(9);
  for (int i = 0; i < random_cases(40); ++i) {
    ExpertsCase test = random_case(rng);
    const NumericProfile profile = kProfiles[i % 2];
    const int64_t row = uniform(rng, 0, test.counts.total() - 1);
    std::vector<std::vector<int32_t>> pairs(test.work.size());
    std::vector<ExpertWork> work;
    for (size_t item = 0; item < test.work.size(); ++item) {
      for (const int32_t pair : test.pairs[item]) {
        if (pair / test.experts_per_token == row) {
          pairs[item].push_back(pair % test.experts_per_token);
        }
      }
      work.push_back({&test.weights[item], pairs[item]});
    }
    const RowCounts one = row < test.counts.decode ? RowCounts{1, 0} : RowCounts{0, 1};
    for (const KernelSet& set : testable_kernels()) {
      const TestRows<float> batch = run(set.kernels, profile, test, 2, test.work);
      OwnedContext context({2, false});
      HostStream stream(context.get());
      TestRows<float> alone(test.experts_per_token, test.hidden_size);
      run_experts(set.kernels, matrix_arithmetic(profile), stream, test.x.view.slice_rows(row, 1),
                  one, test.params(), work, alone.view);
      for (int slot = 0; slot < test.experts_per_token; ++slot) {
        EXPECT_EQ(std::memcmp(batch.view.row<float>(row * test.experts_per_token + slot),
                              alone.view.row<float>(slot),
                              static_cast<size_t>(test.hidden_size) * sizeof(float)),
                  0)
            << set.name << " case " << i;
      }
    }
  }
}

}  // namespace
}  // namespace motley
