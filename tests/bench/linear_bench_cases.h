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

// The format of weights called "mlxB" (B bits in groups of 64), "fp8", "nvfp4" or "mxfp4".
bool parse_bench_format(const std::string& name, WeightMatrix* format);

// `filter`: only cases whose name contains it. `format`: of the weights; shape and planes are
// unused.
std::vector<BenchCase> linear_bench_cases(CpuIsa isa, NumericProfile profile,
                                          const WeightMatrix& format, const std::string& filter);

}  // namespace motley
