// The matrix kernels for instruction sets with vectors of at most 256 bits, over a few primitives
// that the including file defines (linear_avx2.cpp, linear_neon.cpp):
//   kLanes; Ints, Floats: vectors of kLanes 32-bit elements
//   Ints zero_ints(); Ints add_dot(Ints, const uint8_t* codes, const int8_t* x, bool wide): to each
//     lane the sum of 4 products of bytes; wide: codes may exceed 6 bits
//   Ints add_dot_halves(...): the same with 16 bytes of half 0 and 16 of half 1, 64 bytes apart
//   Ints sum_each(const Ints (&)[kLanes]): lane j the sum of vector j
//   Ints shift_left_8(Ints); Ints add(Ints, Ints); Floats to_floats(Ints)
//   Ints load_ints(const void*); Ints subtract(Ints, Ints)
//   Ints sum_pairs(const Ints (&)[kLanes / 2]): vectors as add_dot_halves() makes them, of which
//     the first 8 bytes of either half belong to one group and the others to the next; lane j: the
//     sum of group j
//   Floats zero(), load, broadcast, multiply, fma; void store
//   Floats load_weights(const uint8_t*, ScalarFormat, int64_t index): kLanes scalars from index on,
//     of 16 or 32 bits, or E4M3 times 2^-8
//   void split_nibbles(const uint8_t*, uint8_t* low, uint8_t* high): 32 bytes to 2 x 32 codes
//   void split_e2m1(...): the same with 12 + twice the value of each code
// Everything lies in an unnamed namespace: each file gets its own copy.
#pragma once

#include "ops/cpu/linear_kernels.h"

namespace motley {
namespace {

constexpr int64_t kVectorsOfLanes = kPackedLanes / kLanes;

uint32_t bits_of(float value) {
  uint32_t bits;
  __builtin_memcpy(&bits, &value, sizeof(bits));
  return bits;
}
float float_of(uint32_t bits) {
  float value;
  __builtin_memcpy(&value, &bits, sizeof(value));
  return value;
}
float power_of_two(int exponent) {
  return float_of(static_cast<uint32_t>(exponent + 127) << 23);
}

// The largest k <= 126 with magnitude * 2^k <= 127, 127 * 257 or 127 * 65793.
int shift_for(uint32_t magnitude_bits, int limbs) {
  const uint32_t largest = limbs == 1 ? 0x42FE0000u : limbs == 2 ? 0x46FEFE00u : 0x4AFEFEFEu;
  const bool above = (magnitude_bits & 0x7FFFFFu) > (largest & 0x7FFFFFu);
  const int shift =
      static_cast<int>(largest >> 23) - static_cast<int>(magnitude_bits >> 23) - (above ? 1 : 0);
  return shift < 126 ? shift : 126;
}

// Takes the lowest digit off each value and stores it in the order of a packed row.
void store_digits(int32_t* values, int count, bool nibble_order, std::byte* out) {
  int8_t digits[kPackedBlock];
  for (int i = 0; i < count; ++i) {
    digits[i] = static_cast<int8_t>(values[i]);
    values[i] = (values[i] - digits[i]) >> 8;
  }
  auto* low = reinterpret_cast<int8_t*>(out);
  int8_t* high = low + 64;
  for (int i = 0; i < count / 8; ++i) {
    for (int byte = 0; byte < 4; ++byte) {
      low[4 * i + byte] = digits[8 * i + (nibble_order ? 2 * byte : byte)];
      high[4 * i + byte] = digits[8 * i + (nibble_order ? 2 * byte + 1 : byte + 4)];
    }
  }
}

// The sums that E2M1 codes want (PackedLayout).
void store_integer_sums(const PackedLayout& layout, int64_t group, int32_t sum, int32_t low_sum,
                        std::byte* row) {
  auto* out = reinterpret_cast<int32_t*>(row + layout.sums_offset) + group;
  *out = 12 * (layout.limbs == 3 ? (sum - low_sum) / 256 : sum);
  if (layout.limbs == 3) out[(layout.sums_offset - layout.scales_offset) / 4] = 12 * low_sum;
}

void pack_group(const PackedLayout& layout, const float* x, int64_t group, std::byte* row) {
  const int size = layout.group_size;
  uint32_t largest = 0;
  for (int i = 0; i < size; ++i) {
    const uint32_t magnitude = bits_of(x[i]) & 0x7FFFFFFFu;
    largest = magnitude > largest ? magnitude : largest;
  }
  const bool finite = largest < 0x7F800000u;
  const int shift = finite ? shift_for(largest, layout.limbs) : 0;
  const float multiplier = power_of_two(shift);
  int32_t values[kPackedBlock] = {};
  int32_t sum = 0;
  int32_t low_sum = 0;  // of the lowest limb
  if (finite) {
    for (int i = 0; i < size; ++i) {
      values[i] = static_cast<int32_t>(__builtin_rintf(x[i] * multiplier));
      sum += values[i];
      low_sum += static_cast<int8_t>(values[i]);
    }
  }
  const int64_t element = group * size;
  std::byte* out =
      row + element / kPackedBlock * kPackedBlock * layout.limbs + element % kPackedBlock / 2;
  for (int limb = 0; limb < layout.limbs; ++limb) {
    store_digits(values, size, layout.nibble_order, out + limb * kPackedBlock);
  }
  const float scale = finite ? power_of_two(-shift) : float_of(0x7FC00000u);
  reinterpret_cast<float*>(row + layout.scales_offset)[group] = scale;
  if (layout.e2m1) return store_integer_sums(layout, group, sum, low_sum, row);
  reinterpret_cast<float*>(row + layout.sums_offset)[group] = static_cast<float>(sum) * scale;
}

void pack_groups(const PackedLayout& layout, const float* x, int64_t first, int64_t count,
                 std::byte* row) {
  for (int64_t i = 0; i < count; ++i) {
    pack_group(layout, x + i * layout.group_size, first + i, row);
  }
}

// 8 codes of `bits` bits each to 8 bytes, halving the fields three times.
uint64_t spread_codes(uint64_t word, int bits) {
  const auto field = [](int width) { return (uint64_t{1} << width) - 1; };
  word = (word & field(4 * bits)) | ((word >> (4 * bits)) << 32);
  const uint64_t quarter = field(2 * bits) * 0x0000000100000001u;
  word = (word & quarter) | (((word >> (2 * bits)) & quarter) << 16);
  const uint64_t eighth = field(bits) * 0x0001000100010001u;
  return (word & eighth) | (((word >> bits) & eighth) << 8);
}

// One row's codes as bytes, in the order of a packed row of one limb, and its scalars as floats.
struct UnpackedRow {
  uint8_t* codes;
  float* scales;  // padded with 0 to a multiple of 16 groups
  float* biases;
};

UnpackedRow row_in(std::byte* scratch, const PackedLayout& layout) {
  const int64_t padded = (layout.groups + 15) / 16 * 16;
  auto* scales = reinterpret_cast<float*>(scratch);
  return {reinterpret_cast<uint8_t*>(scratch + 8 * padded), scales, scales + padded};
}

// Codes of E2M1 as 12 + twice their value.
void unpack_e2m1(const uint8_t* data, int64_t cols, uint8_t* out) {
  constexpr uint8_t kCodes[16] = {12, 13, 14, 15, 16, 18, 20, 24, 12, 11, 10, 9, 8, 6, 4, 0};
  int64_t element = 0;
  for (; element + 64 <= cols; element += 64) {
    uint8_t* low = out + element / kPackedBlock * kPackedBlock + element % kPackedBlock / 2;
    split_e2m1(data + element / 2, low, low + 64);
  }
  for (; element < cols; element += 2) {
    uint8_t* low = out + element / kPackedBlock * kPackedBlock + element % kPackedBlock / 2;
    low[0] = kCodes[data[element / 2] & 15];
    low[64] = kCodes[data[element / 2] >> 4];
  }
}

void unpack_codes(const uint8_t* data, int bits, int64_t cols, uint8_t* out) {
  int64_t element = 0;
  if (bits == 4) {
    for (; element + 64 <= cols; element += 64) {
      uint8_t* low = out + element / kPackedBlock * kPackedBlock + element % kPackedBlock / 2;
      split_nibbles(data + element / 2, low, low + 64);
    }
  }
  for (; element < cols; element += 8) {
    uint64_t word = 0;
    for (int i = 0; i < bits; ++i) {
      word |= static_cast<uint64_t>(data[element / 8 * bits + i]) << (8 * i);
    }
    word = spread_codes(word, bits);
    uint8_t* low = out + element / kPackedBlock * kPackedBlock + element % kPackedBlock / 2;
    for (int i = 0; i < 4; ++i) {
      low[i] = static_cast<uint8_t>(word >> (8 * (bits == 4 ? 2 * i : i)));
      low[64 + i] = static_cast<uint8_t>(word >> (8 * (bits == 4 ? 2 * i + 1 : i + 4)));
    }
  }
}

// An E4M3 times 2^-8: its bits are those of a half, but for the place of the sign.
float small_e4m3(uint8_t code) {
  const uint32_t sign = static_cast<uint32_t>(code & 0x80) << 8;
  return half_to_float(static_cast<uint16_t>(sign | static_cast<uint32_t>(code & 0x7F) << 7));
}

float scalar_at(const uint8_t* data, ScalarFormat format, int64_t index) {
  if (format == ScalarFormat::kF32) {
    float value;
    __builtin_memcpy(&value, data + 4 * index, sizeof(value));
    return value;
  }
  if (format == ScalarFormat::kE8M0) {
    const uint32_t exponent = data[index];
    return float_of(exponent == 0 ? 0x00400000u : exponent << 23);
  }
  if (format == ScalarFormat::kE4M3) return small_e4m3(data[index]) * 256.0f;
  uint16_t bits;
  __builtin_memcpy(&bits, data + 2 * index, sizeof(bits));
  if (format == ScalarFormat::kBf16) return float_of(uint32_t{bits} << 16);
  return half_to_float(bits);
}

void unpack_scalars(const uint8_t* data, ScalarFormat format, int64_t groups, float* out) {
  int64_t group = 0;
  const bool is_wide = scalar_bytes(format) > 1;
  for (; is_wide && group + kLanes <= groups; group += kLanes) {
    store(out + group, load_weights(data, format, group));
  }
  for (; group < groups; ++group) out[group] = scalar_at(data, format, group);
  for (; group % 16 != 0; ++group) out[group] = 0;
}

void unpack_row(const AffineRows& weights, int64_t n, const PackedLayout& layout,
                const UnpackedRow& row) {
  unpack_codes(weights.codes + n * weights.codes_stride, weights.bits, layout.cols, row.codes);
  unpack_scalars(weights.scales + n * weights.scales_stride, weights.scale_format, layout.groups,
                 row.scales);
  unpack_scalars(weights.biases + n * weights.biases_stride, weights.scale_format, layout.groups,
                 row.biases);
}

template <int kGroupSize>
Ints group_dot(const uint8_t* codes, const int8_t* x, bool wide) {
  Ints sums = zero_ints();
  if constexpr (kGroupSize == 32) return add_dot_halves(sums, codes, x, wide);
  for (int i = 0; i < kGroupSize / 2; i += 4 * kLanes) {
    sums = add_dot(sums, codes + i, x + i, wide);
    sums = add_dot(sums, codes + 64 + i, x + 64 + i, wide);
  }
  return sums;
}

// totals[limb]: the sums of kLanes groups of 16 from `first` on.
template <int kLimbs>
void small_group_sums(const uint8_t* codes, const std::byte* x, const PackedLayout& layout,
                      int64_t first, Ints (&totals)[kLimbs]) {
  Ints pairs[kLimbs][kLanes / 2];
  for (int64_t j = 0; j < kLanes / 2; ++j) {
    const int64_t group = first + 2 * j;
    const int64_t block = group / 8;
    const int64_t offset = group % 8 * 8;
    const auto* limbs = reinterpret_cast<const int8_t*>(x) + block * kPackedBlock * kLimbs + offset;
    for (int limb = 0; limb < kLimbs; ++limb) {
      pairs[limb][j] = zero_ints();
      if (group >= layout.groups) continue;
      pairs[limb][j] = add_dot_halves(zero_ints(), codes + block * kPackedBlock + offset,
                                      limbs + limb * kPackedBlock, false);
    }
  }
  for (int limb = 0; limb < kLimbs; ++limb) totals[limb] = sum_pairs(pairs[limb]);
}

// The same for larger groups.
template <int kGroupSize, int kLimbs>
void group_sums(const uint8_t* codes, const std::byte* x, const PackedLayout& layout, int64_t first,
                bool wide, Ints (&totals)[kLimbs]) {
  Ints sums[kLimbs][kLanes];
  for (int64_t j = 0; j < kLanes; ++j) {
    const int64_t element = (first + j) * kGroupSize;
    const int64_t block = element / kPackedBlock;
    const int64_t offset = element % kPackedBlock / 2;
    const auto* limbs = reinterpret_cast<const int8_t*>(x) + block * kPackedBlock * kLimbs + offset;
    for (int limb = 0; limb < kLimbs; ++limb) {
      sums[limb][j] = first + j < layout.groups
                          ? group_dot<kGroupSize>(codes + block * kPackedBlock + offset,
                                                  limbs + limb * kPackedBlock, wide)
                          : zero_ints();
    }
  }
  for (int limb = 0; limb < kLimbs; ++limb) totals[limb] = sum_each(sums[limb]);
}

// The upper limbs as one integer.
template <int kLimbs>
Ints upper_limbs(const Ints (&totals)[kLimbs]) {
  if constexpr (kLimbs == 1) return totals[0];
  return add(shift_left_8(totals[kLimbs - 1]), totals[kLimbs == 3 ? 1 : 0]);
}

// float(S) of kLanes groups from `first` on.
template <int kGroupSize, int kLimbs>
Floats group_values(const uint8_t* codes, const std::byte* x, const PackedLayout& layout,
                    int64_t first, bool wide) {
  Ints totals[kLimbs];
  group_sums<kGroupSize, kLimbs>(codes, x, layout, first, wide, totals);
  const Floats high = to_floats(upper_limbs(totals));
  if constexpr (kLimbs < 3) return high;
  return fma(high, broadcast(256.0f), to_floats(totals[0]));
}

// The same of E2M1 codes, whose sums are 12 times the sum of X too large.
template <int kGroupSize, int kLimbs>
Floats e2m1_values(const uint8_t* codes, const std::byte* x, const PackedLayout& layout,
                   int64_t first) {
  Ints totals[kLimbs];
  if constexpr (kGroupSize == 16) {
    small_group_sums<kLimbs>(codes, x, layout, first, totals);
  } else {
    group_sums<kGroupSize, kLimbs>(codes, x, layout, first, false, totals);
  }
  const std::byte* excess = x + layout.sums_offset + first * 4;
  const Floats high = to_floats(subtract(upper_limbs(totals), load_ints(excess)));
  if constexpr (kLimbs < 3) return high;
  excess += layout.sums_offset - layout.scales_offset;
  return fma(high, broadcast(256.0f), to_floats(subtract(totals[0], load_ints(excess))));
}

float sum_lanes(const Floats (&vectors)[kVectorsOfLanes]) {
  float lanes[kPackedLanes];
  for (int64_t v = 0; v < kVectorsOfLanes; ++v) store(lanes + v * kLanes, vectors[v]);
  float sum = 0;
  for (const float lane : lanes) sum += lane;
  return sum;
}

template <int kGroupSize, int kLimbs>
float affine_dot(const UnpackedRow& row, const PackedLayout& layout, const std::byte* x,
                 bool wide) {
  const auto* x_scales = reinterpret_cast<const float*>(x + layout.scales_offset);
  const auto* x_sums = reinterpret_cast<const float*>(x + layout.sums_offset);
  Floats lanes[kVectorsOfLanes];
  for (Floats& lane : lanes) lane = zero();
  for (int64_t first = 0; first < layout.groups; first += kPackedLanes) {
    for (int64_t v = 0; v < kVectorsOfLanes; ++v) {
      const int64_t group = first + v * kLanes;
      if (group >= layout.groups) break;
      const Floats values = group_values<kGroupSize, kLimbs>(row.codes, x, layout, group, wide);
      const Floats scales = multiply(load(row.scales + group), load(x_scales + group));
      lanes[v] = fma(values, scales, lanes[v]);
      lanes[v] = fma(load(row.biases + group), load(x_sums + group), lanes[v]);
    }
  }
  return sum_lanes(lanes);
}

template <int kGroupSize, int kLimbs>
void affine_product(const AffineRows& weights, const PackedLayout& layout,
                    const PackedTokens& tokens, std::byte* scratch) {
  const UnpackedRow row = row_in(scratch, layout);
  for (int64_t n = 0; n < weights.rows; ++n) {
    unpack_row(weights, n, layout, row);
    for (int64_t t = 0; t < tokens.count; ++t) {
      tokens.y[t][tokens.y_offset + n] =
          affine_dot<kGroupSize, kLimbs>(row, layout, tokens.x[t], weights.bits > 6);
    }
  }
}

template <int kGroupSize>
void affine_limbs(const AffineRows& weights, const PackedLayout& layout, const PackedTokens& tokens,
                  std::byte* scratch) {
  if (layout.limbs == 1) return affine_product<kGroupSize, 1>(weights, layout, tokens, scratch);
  if (layout.limbs == 2) return affine_product<kGroupSize, 2>(weights, layout, tokens, scratch);
  affine_product<kGroupSize, 3>(weights, layout, tokens, scratch);
}

template <int kGroupSize, int kLimbs>
float e2m1_dot(const UnpackedRow& row, const PackedLayout& layout, const std::byte* x) {
  const auto* x_scales = reinterpret_cast<const float*>(x + layout.scales_offset);
  Floats lanes[kVectorsOfLanes];
  for (Floats& lane : lanes) lane = zero();
  for (int64_t first = 0; first < layout.groups; first += kPackedLanes) {
    for (int64_t v = 0; v < kVectorsOfLanes; ++v) {
      const int64_t group = first + v * kLanes;
      if (group >= layout.groups) break;
      const Floats values = e2m1_values<kGroupSize, kLimbs>(row.codes, x, layout, group);
      const Floats scales = multiply(load(row.scales + group), load(x_scales + group));
      lanes[v] = fma(values, scales, lanes[v]);
    }
  }
  return sum_lanes(lanes);
}

template <int kGroupSize, int kLimbs>
void e2m1_product(const AffineRows& weights, const PackedLayout& layout, const PackedTokens& tokens,
                  std::byte* scratch) {
  const UnpackedRow row = row_in(scratch, layout);
  for (int64_t n = 0; n < weights.rows; ++n) {
    unpack_e2m1(weights.codes + n * weights.codes_stride, layout.cols, row.codes);
    unpack_scalars(weights.scales + n * weights.scales_stride, weights.scale_format, layout.groups,
                   row.scales);
    for (int64_t t = 0; t < tokens.count; ++t) {
      tokens.y[t][tokens.y_offset + n] =
          e2m1_dot<kGroupSize, kLimbs>(row, layout, tokens.x[t]) * weights.multiplier;
    }
  }
}

template <int kGroupSize>
void e2m1_limbs(const AffineRows& weights, const PackedLayout& layout, const PackedTokens& tokens,
                std::byte* scratch) {
  if (layout.limbs == 1) return e2m1_product<kGroupSize, 1>(weights, layout, tokens, scratch);
  if (layout.limbs == 2) return e2m1_product<kGroupSize, 2>(weights, layout, tokens, scratch);
  e2m1_product<kGroupSize, 3>(weights, layout, tokens, scratch);
}

void affine_rows(const AffineRows& weights, const PackedLayout& layout, const PackedTokens& tokens,
                 std::byte* scratch) {
  if (layout.e2m1 && layout.group_size == 16) {
    return e2m1_limbs<16>(weights, layout, tokens, scratch);
  }
  if (layout.e2m1) return e2m1_limbs<32>(weights, layout, tokens, scratch);
  if (layout.group_size == 32) return affine_limbs<32>(weights, layout, tokens, scratch);
  if (layout.group_size == 64) return affine_limbs<64>(weights, layout, tokens, scratch);
  affine_limbs<128>(weights, layout, tokens, scratch);
}

// kRows rows from n on (those that do not exist repeat the last) by kTokens tokens from t on.
template <int kRows, int kTokens>
void float_tile(const FloatRows& weights, const FloatTokens& tokens, int64_t n, int64_t t) {
  const uint8_t* rows[kRows];
  for (int r = 0; r < kRows; ++r) {
    rows[r] = weights.data + (n + r < weights.rows ? n + r : weights.rows - 1) * weights.stride;
  }
  Floats sums[kRows][kTokens][kVectorsOfLanes];
  for (auto& row : sums) {
    for (auto& token : row) {
      for (Floats& sum : token) sum = zero();
    }
  }
  const int64_t whole = weights.cols / kPackedLanes * kPackedLanes;
  for (int64_t k = 0; k < whole; k += kPackedLanes) {
    for (int64_t v = 0; v < kVectorsOfLanes; ++v) {
      for (int r = 0; r < kRows; ++r) {
        const Floats w = load_weights(rows[r], weights.format, k + v * kLanes);
        for (int i = 0; i < kTokens; ++i) {
          sums[r][i][v] = fma(w, load(tokens.x[t + i] + k + v * kLanes), sums[r][i][v]);
        }
      }
    }
  }
  for (int r = 0; r < kRows && n + r < weights.rows; ++r) {
    for (int i = 0; i < kTokens; ++i) {
      float lanes[kPackedLanes];
      for (int64_t v = 0; v < kVectorsOfLanes; ++v) store(lanes + v * kLanes, sums[r][i][v]);
      for (int64_t k = whole; k < weights.cols; ++k) {
        const float w = scalar_at(rows[r], weights.format, k);
        lanes[k - whole] = __builtin_fmaf(w, tokens.x[t + i][k], lanes[k - whole]);
      }
      float sum = 0;
      for (const float lane : lanes) sum += lane;
      tokens.y[t + i][tokens.y_offset + n + r] = sum;
    }
  }
}

// sums += w x for kRows rows and kTokens tokens at columns [k, k + 16).
template <int kRows, int kTokens>
void add_block_step(const uint8_t* const (&rows)[kRows], const float* const (&x)[kTokens],
                    int64_t k, Floats (&sums)[kRows][kTokens][kVectorsOfLanes]) {
  for (int64_t v = 0; v < kVectorsOfLanes; ++v) {
    for (int r = 0; r < kRows; ++r) {
      const Floats w = load_weights(rows[r], ScalarFormat::kE4M3, k + v * kLanes);
      for (int i = 0; i < kTokens; ++i) {
        sums[r][i][v] = fma(w, load(x[i] + k + v * kLanes), sums[r][i][v]);
      }
    }
  }
}

// The last columns, fewer than 16, with zeros behind them.
template <int kRows, int kTokens>
void add_block_tail(const uint8_t* const (&rows)[kRows], const float* const (&x)[kTokens],
                    int64_t k, int64_t end, Floats (&sums)[kRows][kTokens][kVectorsOfLanes]) {
  uint8_t codes[kRows][kPackedLanes] = {};
  float values[kTokens][kPackedLanes] = {};
  const uint8_t* code_rows[kRows];
  const float* value_rows[kTokens];
  for (int r = 0; r < kRows; ++r) {
    __builtin_memcpy(codes[r], rows[r] + k, static_cast<size_t>(end - k));
    code_rows[r] = codes[r];
  }
  for (int i = 0; i < kTokens; ++i) {
    __builtin_memcpy(values[i], x[i] + k, static_cast<size_t>(end - k) * sizeof(float));
    value_rows[i] = values[i];
  }
  add_block_step<kRows, kTokens>(code_rows, value_rows, 0, sums);
}

// As float_tile, for E4M3 weights.
template <int kRows, int kTokens>
void block_tile(const FloatRows& weights, const FloatTokens& tokens, int64_t n, int64_t t) {
  const uint8_t* rows[kRows];
  const uint8_t* scales[kRows];
  const float* x[kTokens];
  for (int r = 0; r < kRows; ++r) {
    const int64_t row = n + r < weights.rows ? n + r : weights.rows - 1;
    rows[r] = weights.data + row * weights.stride;
    scales[r] = scale_line(weights, row);
  }
  for (int i = 0; i < kTokens; ++i) x[i] = tokens.x[t + i];
  Floats totals[kRows][kTokens][kVectorsOfLanes];
  for (auto& row : totals) {
    for (auto& token : row) {
      for (Floats& total : token) total = zero();
    }
  }
  for (int64_t begin = 0; begin < weights.cols; begin += weights.block_cols) {
    const int64_t rest = weights.cols - begin;
    const int64_t end = begin + (rest < weights.block_cols ? rest : weights.block_cols);
    Floats sums[kRows][kTokens][kVectorsOfLanes];
    for (auto& row : sums) {
      for (auto& token : row) {
        for (Floats& sum : token) sum = zero();
      }
    }
    int64_t k = begin;
    for (; k + kPackedLanes <= end; k += kPackedLanes) {
      add_block_step<kRows, kTokens>(rows, x, k, sums);
    }
    if (k < end) add_block_tail<kRows, kTokens>(rows, x, k, end, sums);
    for (int r = 0; r < kRows; ++r) {
      const float scale = scalar_at(scales[r], weights.scale_format, begin / weights.block_cols);
      const Floats s = broadcast(scale * 256.0f);
      for (int i = 0; i < kTokens; ++i) {
        for (int64_t v = 0; v < kVectorsOfLanes; ++v) {
          totals[r][i][v] = fma(sums[r][i][v], s, totals[r][i][v]);
        }
      }
    }
  }
  for (int r = 0; r < kRows && n + r < weights.rows; ++r) {
    for (int i = 0; i < kTokens; ++i) {
      tokens.y[t + i][tokens.y_offset + n + r] = sum_lanes(totals[r][i]);
    }
  }
}

void block_rows(const FloatRows& weights, const FloatTokens& tokens) {
  for (int64_t n = 0; n < weights.rows; n += 2) {
    int64_t t = 0;
    for (; t + 2 <= tokens.count; t += 2) block_tile<2, 2>(weights, tokens, n, t);
    if (t < tokens.count) block_tile<2, 1>(weights, tokens, n, t);
  }
}

void float_rows(const FloatRows& weights, const FloatTokens& tokens, bool /*fast*/,
                std::byte* /*scratch*/) {
  if (weights.format == ScalarFormat::kE4M3) return block_rows(weights, tokens);
  for (int64_t n = 0; n < weights.rows; n += 4) {
    int64_t t = 0;
    for (; t + 2 <= tokens.count; t += 2) {
      float_tile<2, 2>(weights, tokens, n, t);
      if (n + 2 < weights.rows) float_tile<2, 2>(weights, tokens, n + 2, t);
    }
    if (t < tokens.count) float_tile<4, 1>(weights, tokens, n, t);
  }
}

// e^x for x in [-88, 88], within 2 units in the last place; NaN stays NaN.
float exponential(float x) {
  const float n = __builtin_rintf(x * 0x1.715476p+0f);
  float r = __builtin_fmaf(n, -0x1.62e4p-1f, x);  // ln 2 in two parts
  r = __builtin_fmaf(n, -0x1.7f7d1cp-20f, r);
  float sum = 1.0f / 5040;  // Taylor series: the remainder is below 2^-26 for |r| <= ln 2 / 2
  sum = __builtin_fmaf(sum, r, 1.0f / 720);
  sum = __builtin_fmaf(sum, r, 1.0f / 120);
  sum = __builtin_fmaf(sum, r, 1.0f / 24);
  sum = __builtin_fmaf(sum, r, 1.0f / 6);
  sum = __builtin_fmaf(sum, r, 0.5f);
  sum = __builtin_fmaf(sum, r, 1.0f);
  sum = __builtin_fmaf(sum, r, 1.0f);
  return sum * power_of_two(static_cast<int>(n));
}

void silu_multiply(float* inout, const float* up, int64_t count, float limit) {
  for (int64_t i = 0; i < count; ++i) {
    const float gate = inout[i] > limit ? limit : inout[i];
    const float below = up[i] > limit ? limit : up[i];
    const float bounded = below < -limit ? -limit : below;
    float x = 0.0f - gate;
    x = x < -88.0f ? -88.0f : x;
    x = x > 88.0f ? 88.0f : x;
    // A NaN gate must not reach the conversion to an integer.
    const float known = gate == gate ? x : 0.0f;
    inout[i] = gate / (1.0f + exponential(known)) * bounded;
  }
}

int64_t scratch_bytes(int64_t cols) {
  const int64_t padded_groups = ((cols + 15) / 16 + 15) / 16 * 16;
  return 8 * padded_groups + cols + 2 * kPackedBlock;
}

}  // namespace
}  // namespace motley
