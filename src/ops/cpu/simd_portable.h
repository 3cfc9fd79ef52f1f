// The vector wrapper without any instruction-set extension: four floats, plain operators.
//
// All simd_*.h files define the same names in an unnamed namespace, so a kernel file includes
// exactly one of them and emits no symbol that another instruction set's file could pick up. For
// the same reason nothing here or in the *_inl.h files uses inline functions of other headers.
#pragma once

#include <cstdint>

namespace motley {
namespace {

constexpr int kLanes = 4;
// Query-and-key tile of attention scores: kTilePairs * kTileKeys sums live in registers.
constexpr int kTilePairs = 2;
constexpr int kTileKeys = 4;

typedef float Vec __attribute__((vector_size(16)));
typedef int32_t IntVec __attribute__((vector_size(16)));
typedef uint32_t BitVec __attribute__((vector_size(16)));

inline Vec load(const float* p) {
  Vec v;
  __builtin_memcpy(&v, p, sizeof(v));
  return v;
}
inline void store(float* p, Vec v) {
  __builtin_memcpy(p, &v, sizeof(v));
}
// The first n lanes, 0 < n < kLanes; the others are zero.
inline Vec load_partial(const float* p, int n) {
  Vec v = {};
  for (int i = 0; i < n; ++i) v[i] = p[i];
  return v;
}
inline void store_partial(float* p, Vec v, int n) {
  for (int i = 0; i < n; ++i) p[i] = v[i];
}
inline Vec set1(float x) {
  return Vec{x, x, x, x};
}
inline Vec zero() {
  return Vec{};
}
inline Vec add(Vec a, Vec b) {
  return a + b;
}
inline Vec sub(Vec a, Vec b) {
  return a - b;
}
inline Vec mul(Vec a, Vec b) {
  return a * b;
}
inline Vec div(Vec a, Vec b) {
  return a / b;
}
// a * b + c; two roundings here, one where the machine can.
inline Vec fma(Vec a, Vec b, Vec c) {
  return a * b + c;
}
// x where a < b, else y. A NaN compares false.
inline Vec select_less(Vec a, Vec b, Vec x, Vec y) {
  const IntVec mask = a < b;
  return (Vec)(((IntVec)x & mask) | ((IntVec)y & ~mask));
}
inline Vec max(Vec a, Vec b) {
  return select_less(a, b, b, a);
}
// Nearest integer, |x| < 2^22.
inline Vec round_nearest(Vec x) {
  const Vec magic = set1(12582912.0f);  // 1.5 * 2^23: adding it rounds to an integer
  return (x + magic) - magic;
}
// 2^n for integral n in [-126, 127].
inline Vec power_of_two(Vec n) {
  return (Vec)((__builtin_convertvector(n, IntVec) + 127) << 23);
}
// x = mantissa * 2^exponent for normal positive x, mantissa in [1, 2).
inline Vec mantissa(Vec x) {
  return (Vec)(((IntVec)x & 0x007FFFFF) | 0x3F800000);
}
inline Vec exponent(Vec x) {
  return __builtin_convertvector(((IntVec)x >> 23) - 127, Vec);
}
// Sum in a fixed tree.
inline float reduce_add(Vec v) {
  return (v[0] + v[2]) + (v[1] + v[3]);
}
inline float reduce_max(Vec v) {
  const float a = v[0] < v[2] ? v[2] : v[0];
  const float b = v[1] < v[3] ? v[3] : v[1];
  return a < b ? b : a;
}
// Lane i of the result is reduce_add(v[i]), the same bits.
inline Vec reduce_add_each(const Vec* v) {
  return Vec{reduce_add(v[0]), reduce_add(v[1]), reduce_add(v[2]), reduce_add(v[3])};
}

inline Vec load_bf16(const uint16_t* p) {
  const BitVec bits = {uint32_t{p[0]} << 16, uint32_t{p[1]} << 16, uint32_t{p[2]} << 16,
                       uint32_t{p[3]} << 16};
  return (Vec)bits;
}
// Round to nearest even; NaN stays a quiet NaN: the same bits as to_bf16 of numeric/half.h.
inline void store_bf16(uint16_t* p, Vec v) {
  const BitVec bits = (BitVec)v;
  const BitVec rounded = (bits + 0x7FFFu + ((bits >> 16) & 1u)) >> 16;
  for (int i = 0; i < kLanes; ++i) {
    p[i] = static_cast<uint16_t>(v[i] == v[i] ? rounded[i] : (bits[i] >> 16) | 0x40u);
  }
}

}  // namespace
}  // namespace motley
