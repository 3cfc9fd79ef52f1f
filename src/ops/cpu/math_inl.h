// Elementary functions on vectors. Included after one simd_*.h; errors against the exact function
// of the float32 argument, in units in the last place (ulp) and tested in math_test.cpp:
//   exp_vec       2 ulp on [-87.3, 88]; 0 below (also for -infinity), saturates at e^88 above
//   log_vec       2 ulp for normal positive x
//   sigmoid_vec   3 ulp for x >= -87, absolute error 1e-38 below
//   silu_vec      4 ulp for x >= -87, absolute error 1e-35 below
//   softplus_vec  4 ulp; x itself above 20, where log(1 + e^-x) is below half an ulp
// NaN in, NaN out.
#pragma once

namespace motley {
namespace {

inline Vec exp_vec(Vec x) {
  const Vec lowest = set1(-87.3f);
  const Vec highest = set1(88.0f);
  const Vec clamped = select_less(highest, x, highest, max(x, lowest));
  const Vec n = round_nearest(mul(clamped, set1(1.44269504f)));
  // ln 2 in two parts; the first has few enough bits that n times it is exact.
  Vec r = fma(n, set1(-0.693145751953125f), clamped);
  r = fma(n, set1(-1.42860682e-6f), r);
  Vec p = set1(1.0f / 5040.0f);  // Taylor series, |r| <= ln 2 / 2
  p = fma(p, r, set1(1.0f / 720.0f));
  p = fma(p, r, set1(1.0f / 120.0f));
  p = fma(p, r, set1(1.0f / 24.0f));
  p = fma(p, r, set1(1.0f / 6.0f));
  p = fma(p, r, set1(0.5f));
  p = add(fma(p, mul(r, r), r), set1(1.0f));
  return select_less(x, lowest, zero(), mul(p, power_of_two(n)));
}

inline Vec log_vec(Vec x) {
  // x = m 2^e with m in [sqrt(1/2), sqrt 2); log m = 2 atanh(s), s = (m - 1) / (m + 1).
  Vec m = mantissa(x);
  Vec e = exponent(x);
  const Vec upper = set1(1.41421356f);
  e = select_less(m, upper, e, add(e, set1(1.0f)));
  m = select_less(m, upper, m, mul(m, set1(0.5f)));
  const Vec f = sub(m, set1(1.0f));
  const Vec s = div(f, add(m, set1(1.0f)));
  const Vec z = mul(s, s);
  Vec p = set1(2.0f / 9.0f);
  p = fma(p, z, set1(2.0f / 7.0f));
  p = fma(p, z, set1(2.0f / 5.0f));
  p = fma(p, z, set1(2.0f / 3.0f));
  // 2 s = f - f s, so that the leading term f carries no rounding.
  const Vec tail = sub(fma(mul(p, z), s, mul(e, set1(1.42860682e-6f))), mul(f, s));
  return fma(e, set1(0.693145751953125f), add(f, tail));
}

inline Vec sigmoid_vec(Vec x) {
  return div(set1(1.0f), add(set1(1.0f), exp_vec(sub(zero(), x))));
}

inline Vec silu_vec(Vec x) {
  return div(x, add(set1(1.0f), exp_vec(sub(zero(), x))));
}

inline Vec softplus_vec(Vec x) {
  const Vec u = exp_vec(x);
  // log(1 + u) = log(w) + (u - (w - 1)) / w with w = 1 + u rounded: the second term is what the
  // rounding lost.
  const Vec one = set1(1.0f);
  const Vec w = add(one, u);
  const Vec log1p = add(log_vec(w), div(sub(u, sub(w, one)), w));
  return select_less(set1(20.0f), x, x, log1p);
}

// The n elements at p, 0 <= n <= kLanes or more: absent ones are zero.
inline Vec load_upto(const float* p, int64_t n) {
  if (n >= kLanes) return load(p);
  return n > 0 ? load_partial(p, static_cast<int>(n)) : zero();
}
inline void store_upto(float* p, Vec v, int64_t n) {
  if (n >= kLanes) {
    store(p, v);
  } else if (n > 0) {
    store_partial(p, v, static_cast<int>(n));
  }
}

constexpr int64_t round_up_to_lanes(int64_t n) {
  return (n + kLanes - 1) / kLanes * kLanes;
}

}  // namespace
}  // namespace motley
