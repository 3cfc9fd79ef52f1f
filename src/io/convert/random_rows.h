// Deterministic random numbers addressed by position: any block of any module can be filled by any
// thread, in any order, with the same result.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

namespace motley {

class PositionedRandom {
 public:
  // A stream of its own for each (seed, stream, row).
  PositionedRandom(uint64_t seed, uint64_t stream, uint64_t row);

  uint64_t next();
  // Uniform in [0, 1).
  double uniform() { return static_cast<double>(next() >> 11) * 0x1p-53; }
  // Mean 0, variance 1 (sum of uniforms: bounded, which keeps quantisation ranges small).
  float normal();
  void fill_bytes(std::span<std::byte> out);

 private:
  uint64_t state_;
};

}  // namespace motley
