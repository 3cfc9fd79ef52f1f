#include "machine_limits.h"

#include <algorithm>
#include <cstddef>
#include <ctime>
#include <vector>

namespace motley {
namespace {

#if defined(__AVX512F__)
constexpr int kBytes = 64;
#elif defined(__AVX2__)
constexpr int kBytes = 32;
#else
constexpr int kBytes = 16;
#endif
typedef float Vec __attribute__((vector_size(kBytes)));
constexpr int kLanes = kBytes / 4;

// One fused multiply-add that the compiler neither folds nor keeps in memory.
Vec step(Vec sum, Vec a, Vec b) {
#if defined(__x86_64__)
  asm volatile("vfmadd213ps %2, %1, %0" : "+v"(sum) : "v"(a), "v"(b));
  return sum;
#else
  return sum * a + b;
#endif
}

// Processor time: other programs on a busy machine do not count.
double seconds() {
  timespec now{};
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
  return static_cast<double>(now.tv_sec) + static_cast<double>(now.tv_nsec) * 1e-9;
}

}  // namespace

double measure_fma_gflops() {
  constexpr int kChains = 12;
  constexpr int kSteps = 20000;
  double best = 0;
  volatile float sink = 0;
  for (int round = 0; round < 20; ++round) {
    Vec sums[kChains] = {};
    Vec a = {};
    Vec b = {};
    for (int i = 0; i < kLanes; ++i) {
      a[i] = 0.999f;
      b[i] = static_cast<float>(round) * 1e-3f;
    }
    const double start = seconds();
    for (int round_step = 0; round_step < kSteps; ++round_step) {
#pragma GCC unroll 12
      for (int i = 0; i < kChains; ++i) sums[i] = step(sums[i], a, b);
    }
    const double elapsed = seconds() - start;
    for (const Vec& sum : sums) sink = sink + sum[0];
    best = std::max(best, 2.0 * kLanes * kChains * kSteps / elapsed * 1e-9);
  }
  return best;
}

double measure_read_gbps() {
  const std::vector<float> data(size_t{1} << 26, 1.0f);
  double best = 0;
  volatile float sink = 0;
  for (int round = 0; round < 8; ++round) {
    Vec sums[8] = {};
    const double start = seconds();
    for (size_t i = 0; i < data.size(); i += 8 * kLanes) {
      for (size_t j = 0; j < 8; ++j) {
        Vec v;
        __builtin_memcpy(&v, data.data() + i + j * kLanes, kBytes);
        sums[j] += v;
      }
    }
    const double elapsed = seconds() - start;
    for (const Vec& sum : sums) sink = sink + sum[0];
    best = std::max(best, static_cast<double>(data.size()) * 4 / elapsed * 1e-9);
  }
  return best;
}

}  // namespace motley
