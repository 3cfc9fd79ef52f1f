#include "ops/cpu/peak_kernels.h"

namespace motley {
namespace {

constexpr int kLanes = 64;

float run_float(int64_t rounds) {
  float sums[kLanes] = {};
  float factor = 0.5f;
  for (int64_t round = 0; round < rounds; ++round) {
    for (int lane = 0; lane < kLanes; ++lane) sums[lane] = sums[lane] * factor + 1.0f;
  }
  float total = 0;
  for (const float sum : sums) total += sum;
  return total;
}

}  // namespace

PeakKernels peak_kernels_portable() {
  return {{{"multiply and add", "float32", kLanes, run_float}}};
}

}  // namespace motley
