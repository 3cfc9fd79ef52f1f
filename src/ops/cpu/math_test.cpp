#include <bit>
#include <cmath>
#include <limits>

#include "numeric/half.h"
#include "ops/cpu/cpu_test_util.h"
#include "ops/reference/reference_math.h"

namespace motley {
namespace {

class CpuMathTest : public testing::TestWithParam<CpuIsa> {
 protected:
  using Map = void (*)(const float*, int64_t, float*);

  // Largest error of `map` in units of the result's last place, over [low, high].
  static double worst_ulp(Map map, double (*exact)(double), float low, float high) {
    constexpr int64_t kPoints = 200001;
    std::vector<float> x(kPoints);
    for (int64_t i = 0; i < kPoints; ++i) {
      x[static_cast<size_t>(i)] =
          low + (high - low) * static_cast<float>(i) / static_cast<float>(kPoints - 1);
    }
    std::vector<float> y(kPoints);
    map(x.data(), kPoints, y.data());
    double worst = 0;
    for (size_t i = 0; i < x.size(); ++i) {
      const double want = exact(double{x[i]});
      const float rounded = std::abs(static_cast<float>(want));
      const double ulp =
          std::max(double{std::nextafter(rounded, INFINITY)} - double{rounded}, double{0x1p-149f});
      const double error = std::abs(double{y[i]} - want) / ulp;
      if (!(error <= worst)) worst = error;
    }
    return worst;
  }

  static float at(Map map, float x) {
    float y = 0;
    map(&x, 1, &y);
    return y;
  }

  const CpuKernels& kernels_ = test_kernels(GetParam());
};

TEST_P(CpuMathTest, ErrorsStayWithinWhatTheHeaderStates) {
  const auto exp = [](double x) { return std::exp(x); };
  const auto log = [](double x) { return std::log(x); };
  EXPECT_LE(worst_ulp(kernels_.exp, exp, -87.2f, 88.0f), 2.0);
  EXPECT_LE(worst_ulp(kernels_.exp, exp, -1.0f, 1.0f), 2.0);
  EXPECT_LE(worst_ulp(kernels_.log, log, 1e-3f, 4.0f), 2.0);
  EXPECT_LE(worst_ulp(kernels_.log, log, 4.0f, 1e6f), 2.0);
  EXPECT_LE(worst_ulp(kernels_.sigmoid, reference_sigmoid, -87.0f, 87.0f), 3.0);
  EXPECT_LE(worst_ulp(kernels_.silu, reference_silu, -82.0f, 87.0f), 4.0);
  EXPECT_LE(worst_ulp(kernels_.softplus, reference_softplus, -87.0f, 30.0f), 4.0);
}

TEST_P(CpuMathTest, EndsOfTheRange) {
  const float infinity = std::numeric_limits<float>::infinity();
  const float nan = std::numeric_limits<float>::quiet_NaN();
  EXPECT_EQ(at(kernels_.exp, 0.0f), 1.0f);
  EXPECT_EQ(at(kernels_.exp, -infinity), 0.0f);
  EXPECT_EQ(at(kernels_.exp, -1000.0f), 0.0f);
  EXPECT_GT(at(kernels_.exp, infinity), 1e38f);
  EXPECT_TRUE(std::isnan(at(kernels_.exp, nan)));
  EXPECT_EQ(at(kernels_.sigmoid, infinity), 1.0f);
  EXPECT_LT(at(kernels_.sigmoid, -infinity), 1e-37f);
  EXPECT_EQ(at(kernels_.silu, 1000.0f), 1000.0f);
  EXPECT_NEAR(at(kernels_.silu, -1000.0f), 0.0f, 1e-35f);
  // Trap 4 of the family: without the linear branch this overflows to infinity.
  EXPECT_EQ(at(kernels_.softplus, 1000.0f), 1000.0f);
  EXPECT_EQ(at(kernels_.softplus, 100.0f), 100.0f);
  EXPECT_EQ(at(kernels_.softplus, -1000.0f), 0.0f);
  EXPECT_TRUE(std::isnan(at(kernels_.softplus, nan)));
}

TEST_P(CpuMathTest, ALaneDoesNotDependOnItsNeighbours) {
  TestRandom random(1);
  std::vector<float> x(67);
  for (float& value : x) value = static_cast<float>(4.0 * random.normal());
  for (const Map map : {kernels_.exp, kernels_.sigmoid, kernels_.silu, kernels_.softplus}) {
    std::vector<float> together(x.size());
    map(x.data(), static_cast<int64_t>(x.size()), together.data());
    for (size_t i = 0; i < x.size(); ++i) EXPECT_EQ(at(map, x[i]), together[i]);
  }
}

TEST_P(CpuMathTest, Bf16RoundsAsTheScalarFunctionDoes) {
  std::vector<float> x;
  for (uint32_t high = 0; high < 0x10000; high += 7) {
    for (const uint32_t low : {0x0000u, 0x7FFFu, 0x8000u, 0x8001u, 0xFFFFu}) {
      x.push_back(std::bit_cast<float>((high << 16) | low));
    }
  }
  std::vector<uint16_t> y(x.size());
  kernels_.to_bf16(x.data(), static_cast<int64_t>(x.size()), y.data());
  for (size_t i = 0; i < x.size(); ++i) ASSERT_EQ(y[i], to_bf16(x[i]).bits) << x[i];
}

MOTLEY_TEST_EACH_CPU(CpuMathTest);

}  // namespace
}  // namespace motley
