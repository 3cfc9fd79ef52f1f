// The matrix products of one layer of a 35-billion-parameter mixture-of-experts model.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "ops/cpu/linear_ops.h"

namespace motley {

struct BenchCase {
  std::string name;
  int64_t decode_rows = 0;
  int64_t prefill_rows = 0;
  double weight_bytes = 0;  // of one call
  double operations = 0;    // of one call: two per weight and row
  // One call on weights that the calls before it did not leave in a cache.
  std::function<void(Stream&)> run;
};

// `filter`: only cases whose name contains it. Weights are MLX affine with groups of 64.
std::vector<BenchCase> linear_bench_cases(CpuIsa isa, NumericProfile profile, int bits,
                                          const std::string& filter);

}  // namespace motley
