// Scalar functions of the reference ops.
#pragma once

#include <algorithm>
#include <cmath>

#include "ops/swiglu.h"

namespace motley {

inline double reference_sigmoid(double x) {
  return 1.0 / (1.0 + std::exp(-x));
}
inline double reference_silu(double x) {
  return x * reference_sigmoid(x);
}
inline double reference_swiglu(double gate, double up, SwigluParams params) {
  const double limit = params.limit;
  return reference_silu(std::min(gate, limit)) * std::clamp(up, -limit, limit);
}
// log(1 + e^x); linear for large x, where e^x would overflow.
inline double reference_softplus(double x) {
  return x > 40.0 ? x : std::log1p(std::exp(x));
}

}  // namespace motley
