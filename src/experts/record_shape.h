// The planes of an expert, and how they lie in a packed record.
//
// A record holds the planes of gate and up, then those of down, each part padded to whole blocks so
// that it is one aligned read; planes begin at multiples of 64 bytes. The shape follows from the
// expert's own shape alone (docs/pack.md has the format).
// Units: bytes. Thread rule: pure functions and values.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>

#include "ops/moe.h"

namespace motley {

inline constexpr int kExpertPlanes = 9;        // gate, up, down x codes, scales, biases
inline constexpr int kFirstDownPlane = 6;      // planes before it belong to gate and up
inline constexpr int64_t kRecordBlock = 4096;  // what any drive's direct reads accept

// The nine planes in the order of their indices.
template <typename Weights>
auto expert_planes(Weights& weights) {
  return std::array{&weights.gate.codes, &weights.gate.scales, &weights.gate.biases,
                    &weights.up.codes,   &weights.up.scales,   &weights.up.biases,
                    &weights.down.codes, &weights.down.scales, &weights.down.biases};
}
// Bytes of plane `plane`; 0 for one that the format does not have.
int64_t expert_plane_bytes(const ExpertWeights& weights, int plane);

struct RecordShape {
  std::array<int64_t, kExpertPlanes> at = {};  // of each plane in the record; -1: no such plane
  int64_t gate_up_bytes = 0;                   // whole blocks
  int64_t down_bytes = 0;                      // the same, behind them

  static RecordShape of(const ExpertWeights& expert);
  int64_t bytes() const { return gate_up_bytes + down_bytes; }
  friend bool operator==(const RecordShape&, const RecordShape&) = default;
};

// Copies the planes of `expert` to their places in `record` (shape.bytes() long) and zeroes the
// gaps, so that equal experts are equal records.
void write_record(const ExpertWeights& expert, const RecordShape& shape,
                  std::span<std::byte> record);

}  // namespace motley
