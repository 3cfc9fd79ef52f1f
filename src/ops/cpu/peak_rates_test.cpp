#include "ops/cpu/peak_rates.h"

#include <gtest/gtest.h>

namespace motley {
namespace {

TEST(PeakRates, EveryAvailableSetHasARateForEachUnit) {
  const std::vector<CpuIsa> isas = available_cpu_isas();
  ThreadPool threads({.threads = 1, .pin = false});
  const SteadyClock clock;
  for (const CpuIsa isa : isas) {
    const std::vector<PeakRate> rates = measure_peak_rates(isa, threads, clock);
    ASSERT_FALSE(rates.empty()) << cpu_isa_name(isa);
    for (const PeakRate& rate : rates) {
      // Between one a microsecond and far beyond any processor.
      EXPECT_GT(rate.multiply_adds_per_s, 1e6) << rate.instruction;
      EXPECT_LT(rate.multiply_adds_per_s, 1e15) << rate.instruction;
      EXPECT_FALSE(rate.numbers.empty());
    }
  }
}

TEST(PeakRates, ReadRateIsPlausible) {
  ThreadPool threads({.threads = 2, .pin = false});
  const SteadyClock clock;
  const auto rate = measure_read_bytes_per_s(int64_t{64} << 20, threads, clock);
  ASSERT_TRUE(rate.is_ok()) << rate.status().message();
  EXPECT_GT(*rate, 1e7);
  EXPECT_LT(*rate, 1e14);
}

TEST(PeakRates, ReadTestStaysWithinItsShareOfMemory) {
  const int64_t gib = int64_t{1} << 30;
  EXPECT_LE(read_test_bytes(2 * gib), gib / 2);
  EXPECT_GE(read_test_bytes(1000 * gib), gib);
  EXPECT_GT(read_test_bytes(0), 0);
}

}  // namespace
}  // namespace motley
