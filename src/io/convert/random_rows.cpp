#include "io/convert/random_rows.h"

#include <cstring>

namespace motley {
namespace {

// SplitMix64 (Steele, Lea, Flood 2014).
uint64_t mix(uint64_t value) {
  value = (value ^ (value >> 30)) * 0xBF58476D1CE4E5B9u;
  value = (value ^ (value >> 27)) * 0x94D049BB133111EBu;
  return value ^ (value >> 31);
}

constexpr uint64_t kStep = 0x9E3779B97F4A7C15u;

}  // namespace

PositionedRandom::PositionedRandom(uint64_t seed, uint64_t stream, uint64_t row)
    : state_(mix(mix(mix(seed + kStep) ^ stream) + row * kStep)) {}

uint64_t PositionedRandom::next() {
  state_ += kStep;
  return mix(state_);
}

float PositionedRandom::normal() {
  // Four 16-bit uniforms: variance 4 / 12.
  const uint64_t bits = next();
  const auto part = [&](int shift) { return static_cast<float>((bits >> shift) & 0xFFFF); };
  const float sum = part(0) + part(16) + part(32) + part(48);
  constexpr float kMean = 2.0f * 65535.0f;
  constexpr float kDeviation = 65535.0f * 0.57735027f;
  return (sum - kMean) / kDeviation;
}

void PositionedRandom::fill_bytes(std::span<std::byte> out) {
  size_t i = 0;
  for (; i + 8 <= out.size(); i += 8) {
    const uint64_t bits = next();
    std::memcpy(out.data() + i, &bits, 8);
  }
  if (i < out.size()) {
    const uint64_t bits = next();
    std::memcpy(out.data() + i, &bits, out.size() - i);
  }
}

}  // namespace motley
