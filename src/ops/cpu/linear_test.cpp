#include <gtest/gtest.h>

#include <limits>

#include "base/owned_context.h"
#include "ops/cpu/linear_test_util.h"
#include "ops/reference/reference_ops.h"
#include "support/random_cases.h"

namespace motley {

std::vector<KernelSet> testable_kernels() {
  std::vector<KernelSet> sets;
  for (const CpuIsa isa : available_cpu_isas()) {
    sets.push_back({std::string(cpu_isa_name(isa)), linear_kernels(isa)});
#if defined(__x86_64__)
    if (isa == CpuIsa::kAvx512) sets.push_back({"amx emulated", linear_kernels_tiles_emulated()});
#endif
  }
  return sets;
}

namespace {

constexpr NumericProfile kProfiles[] = {NumericProfile::kExact, NumericProfile::kFast};

struct LinearCase {
  std::vector<TestMatrix> matrices;
  TestRows<float> x;
  RowCounts counts;
};

LinearCase random_case(TestRng& rng, int max_targets = 3) {
  const TestFormat first = random_format(rng);
  const int64_t targets = uniform(rng, 1, max_targets);
  // Whole groups of the widest size when formats differ.
  const int64_t granule = targets > 1 ? 128 : first.granule();
  const int64_t cols = granule * uniform(rng, 1, std::max<int64_t>(1, 1500 / granule));
  const int64_t rows = uniform(rng, 0, 2) == 0 ? uniform(rng, 1, 70) : uniform(rng, 1, 9);
  const int64_t decode = std::clamp<int64_t>(uniform(rng, -rows, 2 * rows), 0, rows);
  LinearCase result{{}, random_activations(rng, rows, cols, uniform(rng, 0, 5)), {}};
  result.counts = {decode, rows - decode};
  for (int64_t i = 0; i < targets; ++i) {
    // The middle of a stack of three, as one expert of many.
    const int64_t outputs = uniform(rng, 1, 5) == 1 ? uniform(rng, 60, 200) : uniform(rng, 1, 40);
    result.matrices.emplace_back(rng, i == 0 ? first : random_format(rng), 3 * outputs, cols);
    TestMatrix& matrix = result.matrices.back();
    matrix.view = matrix.view.slice_rows(outputs, outputs);
  }
  return result;
}

std::vector<TestRows<float>> multiply(const LinearKernels& kernels, NumericProfile profile,
                                      LinearCase& test, int threads, RowCounts counts,
                                      int64_t first_row) {
  OwnedContext context({threads, false});
  HostStream stream(context.get());
  std::vector<TestRows<float>> results;
  std::vector<LinearTarget> targets;
  for (const TestMatrix& matrix : test.matrices) {
    results.emplace_back(counts.total(), matrix.view.rows, 3);
    targets.push_back({matrix.view, results.back().view});
  }
  run_linear(kernels, matrix_arithmetic(profile), stream,
             test.x.view.slice_rows(first_row, counts.total()), counts, targets);
  return results;
}

std::vector<TestRows<float>> multiply(const LinearKernels& kernels, NumericProfile profile,
                                      LinearCase& test, int threads = 2) {
  return multiply(kernels, profile, test, threads, test.counts, 0);
}

TestRows<double> reference_product(const WeightMatrix& weights, TestRows<float>& x) {
  OwnedContext context({1, false});
  HostStream stream(context.get());
  TestRows<double> wide = widen(x);
  TestRows<double> y(x.view.rows(), weights.rows);
  const LinearTarget target{weights, y.view};
  reference_linear_ops().linear(stream, wide.view, {0, x.view.rows()}, {&target, 1});
  return y;
}

bool same_bits(const float* a, const float* b, int64_t count) {
  return std::memcmp(a, b, static_cast<size_t>(count) * sizeof(float)) == 0;
}

::testing::AssertionResult same_rows(TestRows<float>& a, int64_t a_row, TestRows<float>& b,
                                     int64_t b_row) {
  if (same_bits(a.view.row<float>(a_row), b.view.row<float>(b_row), a.view.cols())) {
    return ::testing::AssertionSuccess();
  }
  return ::testing::AssertionFailure() << "row " << a_row << " differs from row " << b_row;
}

void expect_within(TestRows<float>& y, TestRows<double>& expected, TestRows<double>& magnitude,
                   double factor) {
  for (int64_t row = 0; row < y.view.rows(); ++row) {
    for (int64_t n = 0; n < y.view.cols(); ++n) {
      ASSERT_LE(std::fabs(y.at(row, n) - expected.at(row, n)), factor * magnitude.at(row, n))
          << "row " << row << " output " << n << ": " << y.at(row, n) << " not "
          << expected.at(row, n);
    }
  }
}

TEST(Linear, WithinBoundsOfTheReference) {
  TestRng rng(20260101);
  for (int i = 0; i < random_cases(200); ++i) {
    LinearCase test = random_case(rng);
    std::vector<TestRows<double>> expected;
    std::vector<TestRows<double>> magnitude;
    for (const TestMatrix& matrix : test.matrices) {
      expected.push_back(reference_product(matrix.view, test.x));
      magnitude.push_back(absolute_products(matrix.view, test.x));
    }
    for (const KernelSet& set : testable_kernels()) {
      for (const NumericProfile profile : kProfiles) {
        SCOPED_TRACE(set.name + " " + std::string(numeric_profile_name(profile)) + " case " +
                     std::to_string(i));
        auto y = multiply(set.kernels, profile, test);
        for (size_t target = 0; target < y.size(); ++target) {
          expect_within(y[target], expected[target], magnitude[target],
                        error_factor(profile, test.x.view.cols()));
        }
        if (HasFatalFailure()) return;
      }
    }
  }
}

TEST(Linear, ARowDependsOnNothingButItself) {
  TestRng rng(7);
  for (int i = 0; i < random_cases(60); ++i) {
    LinearCase test = random_case(rng);
    for (const KernelSet& set : testable_kernels()) {
      const NumericProfile profile = kProfiles[i % 2];
      SCOPED_TRACE(set.name + " case " + std::to_string(i));
      auto together = multiply(set.kernels, profile, test, 1);
      auto threaded = multiply(set.kernels, profile, test, i % 2 == 0 ? 2 : 5);
      const int64_t row = uniform(rng, 0, test.x.view.rows() - 1);
      const RowCounts one = row < test.counts.decode ? RowCounts{1, 0} : RowCounts{0, 1};
      auto alone = multiply(set.kernels, profile, test, 1, one, row);
      for (size_t target = 0; target < together.size(); ++target) {
        EXPECT_TRUE(same_rows(together[target], row, alone[target], 0));
        for (int64_t r = 0; r < test.x.view.rows(); ++r) {
          ASSERT_TRUE(same_rows(together[target], r, threaded[target], r));
        }
      }
    }
  }
}

// More rows than share one pass over the weights, or one set of unpacked tiles.
TEST(Linear, ARowOfManyDependsOnNothingButItself) {
  constexpr int64_t kRows = 281;
  TestRng rng(13);
  const TestFormat format{WeightFormat::kMlxAffine, {4, 64}, DType::kBf16};
  LinearCase test{{}, random_activations(rng, kRows, 2048, 0), {0, kRows}};
  test.matrices.emplace_back(rng, format, 72, 2048);
  for (const KernelSet& set : testable_kernels()) {
    for (const NumericProfile profile : kProfiles) {
      SCOPED_TRACE(set.name + " " + std::string(numeric_profile_name(profile)));
      auto together = multiply(set.kernels, profile, test);
      for (const int64_t row : {0, 95, 96, 255, 256, 280}) {
        auto alone = multiply(set.kernels, profile, test, 1, {0, 1}, row);
        EXPECT_TRUE(same_rows(together[0], row, alone[0], 0));
      }
    }
  }
}

// Prefill rows that meet bfloat16 tiles have the bits of the path that has them.
bool has_common_bits(const LinearKernels& kernels, NumericProfile profile, const LinearCase& test,
                     int64_t row) {
  if (test.matrices[0].view.format == WeightFormat::kBlockFloat) return true;
  const MlxAffineFormat& format = test.matrices[0].view.affine;
  return !kernels.bfloat16_tiles || profile == NumericProfile::kExact || row < test.counts.decode ||
         format.bits != 4 || format.group_size == 32;
}

TEST(Linear, QuantisedBitsAreTheSameOnEveryInstructionSet) {
  TestRng rng(11);
  const std::vector<KernelSet> sets = testable_kernels();
  for (int i = 0; i < random_cases(100); ++i) {
    LinearCase test = random_case(rng, 1);
    const WeightFormat format = test.matrices[0].view.format;
    if (format != WeightFormat::kMlxAffine && format != WeightFormat::kBlockFloat) continue;
    for (const NumericProfile profile : kProfiles) {
      auto expected = multiply(sets[0].kernels, profile, test);
      for (const KernelSet& set : sets) {
        SCOPED_TRACE(set.name + " case " + std::to_string(i));
        auto actual = multiply(set.kernels, profile, test);
        for (int64_t row = 0; row < test.x.view.rows(); ++row) {
          if (!has_common_bits(set.kernels, profile, test, row)) continue;
          ASSERT_TRUE(same_rows(expected[0], row, actual[0], row));
        }
      }
    }
  }
}

// Values that break careless quantisation: row i of x gets kind i.
void make_hostile(TestRows<float>& x) {
  constexpr float kInfinity = std::numeric_limits<float>::infinity();
  const int64_t cols = x.view.cols();
  for (int64_t col = 0; col < cols; ++col) {
    x.at(0, col) = 0.0f;
    x.at(1, col) = -0.0f;
    if (col >= cols / 2) x.at(2, col) = 0.0f;  // a zero group
    x.at(3, col) *= 0x1p100f;
    x.at(4, col) *= 0x1p-90f;
    x.at(5, col) = col % 2 == 0 ? 0x1p-140f : -0x1p-149f;
  }
  x.at(6, 3) = std::numeric_limits<float>::quiet_NaN();
  x.at(7, cols - 1) = -kInfinity;
  x.at(8, 0) = kInfinity;
}

TEST(Linear, HostileRowsStayWithinBoundsAndToThemselves) {
  constexpr int64_t kFinite = 6;
  constexpr int64_t kRows = 20;
  TestRng rng(3);
  for (int i = 0; i < 40; ++i) {
    const TestFormat format = random_format(rng);
    const int64_t cols = 128 * uniform(rng, 1, 4);
    LinearCase test{{}, random_activations(rng, kRows, cols, 1), {i % 2 * kRows, 0}};
    test.counts.prefill = kRows - test.counts.decode;
    test.matrices.emplace_back(rng, format, 33, cols);
    make_hostile(test.x);
    const WeightMatrix& weights = test.matrices[0].view;
    TestRows<double> expected = reference_product(weights, test.x);
    TestRows<double> magnitude = absolute_products(weights, test.x);
    // Activations below 2^-126 of the group's power of two count as zero (linear_kernels.h).
    for (int64_t row = 0; row < kRows; ++row) {
      for (int64_t n = 0; n < weights.rows; ++n) {
        magnitude.at(row, n) += 0x1p-120 * static_cast<double>(cols);
      }
    }
    for (const KernelSet& set : testable_kernels()) {
      SCOPED_TRACE(set.name + " " + format.name());
      const NumericProfile profile = kProfiles[i / 2 % 2];
      auto y = multiply(set.kernels, profile, test);
      const double factor = error_factor(profile, cols);
      for (int64_t row = 0; row < kRows; ++row) {
        for (int64_t n = 0; n < weights.rows; ++n) {
          const float value = y[0].at(row, n);
          if (row >= kFinite && row < kFinite + 3) {
            ASSERT_FALSE(std::isfinite(value)) << "row " << row;
          } else {
            ASSERT_LE(std::fabs(value - expected.at(row, n)), factor * magnitude.at(row, n))
                << "row " << row;
          }
        }
      }
    }
  }
}

TEST(Linear, EmbedDecodesRowsInTheOrderOfTheIds) {
  TestRng rng(5);
  OwnedContext context({2, false});
  HostStream stream(context.get());
  const TestMatrix table(rng, random_affine_format(rng), 50, 256);
  const std::vector<int32_t> ids = {49, 0, 7, 7, 31};
  TestRows<float> out(5, 256, 2);
  cpu_linear_ops(CpuIsa::kPortable, NumericProfile::kFast).embed(stream, table.view, ids, out.view);
  std::vector<float> expected(256);
  for (size_t i = 0; i < ids.size(); ++i) {
    decode_row(table.view, ids[i], expected.data());
    EXPECT_TRUE(same_bits(expected.data(), out.view.row<float>(static_cast<int64_t>(i)), 256));
  }
}

}  // namespace
}  // namespace motley
