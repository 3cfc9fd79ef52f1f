// Quantised blocks of GGUF files: w = scale * code + bias over groups of 16 or 32 values.
//
//   type   values  bytes  fields                                        value
//   Q4_0   32      18     F16 d; 16 bytes of nibbles                    d * (q - 8)
//   Q8_0   32      34     F16 d; 32 int8                                d * q
//   Q4_K   256     144    F16 d, dmin; 12 bytes of 6-bit sc, m;         d * sc * q - dmin * m
//                         128 bytes of nibbles                          (sc, m per 32 values)
//   Q5_K   256     176    as Q4_K with 32 bytes of fifth bits before    the same
//                         the nibbles
//   Q6_K   256     210    128 bytes low nibbles, 64 bytes high pairs,   d * sc * (q - 32)
//                         16 int8 sc, F16 d                             (sc per 16 values)
// Nibbles: low ones hold the first half of a 32- or 64-value stretch, high ones the second.
// Every product of scales is exact in float32, so a block is affine groups with float32 scales and
// biases without loss: that is how it is decoded and how kernels see it.
// Source: ggml, ggml-common.h (block layouts) and ggml-quants.c (dequantize_row_*).
// Thread rule: pure functions.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string_view>

namespace motley {

enum class GgufType : uint8_t { kQ4_0, kQ8_0, kQ4K, kQ5K, kQ6K };

struct GgufBlockFacts {
  GgufType type;
  std::string_view name;  // "Q4_K"
  int64_t values;         // of a block
  int64_t bytes;          // of a block
  int group_size;         // values that share a scale
  int code_bits;
};
const GgufBlockFacts& gguf_facts(GgufType type);
std::optional<GgufType> gguf_type_from_name(std::string_view name);

// Bytes of a row of `cols` values, whole blocks.
inline int64_t gguf_row_bytes(GgufType type, int64_t cols) {
  return cols / gguf_facts(type).values * gguf_facts(type).bytes;
}

// One block as groups. Codes are unsigned: Q8_0 has 128 added.
struct GgufGroups {
  static constexpr int kMaxValues = 256;
  static constexpr int kMaxGroups = 16;
  uint8_t codes[kMaxValues];
  float scales[kMaxGroups];
  float biases[kMaxGroups];
};
void gguf_unpack(GgufType type, const uint8_t* block, GgufGroups* out);

// The values of a block: scale * code + bias, rounded once (only Q4_K and Q5_K can need it).
void gguf_decode(GgufType type, const uint8_t* block, float* out);
// The same in float64.
void gguf_decode(GgufType type, const uint8_t* block, double* out);

// The first of `blocks` blocks with a scale that is NaN or infinite; -1 if there is none.
int64_t find_bad_gguf_block(GgufType type, const uint8_t* blocks, int64_t count);

// A block of `values` (finite, as many as the type has): scales by the largest magnitude or the
// range of each group. Simpler than ggml's search for the least error; for tests and conversions.
void gguf_encode(GgufType type, std::span<const float> values, uint8_t* block);

}  // namespace motley
