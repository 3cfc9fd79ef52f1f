// The portable matrix kernels: the arithmetic of linear_kernels.h in its plainest form, and what
// the vector versions must equal bit for bit on MLX weights.
#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>

#include "numeric/half.h"
#include "numeric/small_float.h"
#include "ops/cpu/linear_kernels.h"

namespace motley {
namespace {

float load_scalar(const uint8_t* data, ScalarFormat format, int64_t index) {
  if (format == ScalarFormat::kF32) {
    float value;
    std::memcpy(&value, data + index * 4, sizeof(value));
    return value;
  }
  if (format == ScalarFormat::kE4M3) return to_float(E4M3{data[index]});
  if (format == ScalarFormat::kE8M0) return to_float(E8M0{data[index]});
  uint16_t bits;
  std::memcpy(&bits, data + index * 2, sizeof(bits));
  return format == ScalarFormat::kBf16 ? to_float(Bf16{bits}) : to_float(F16{bits});
}

// Byte of element `element` of limb 0; limb l is 128 * l further on.
int64_t limb_byte(const PackedLayout& layout, int64_t element) {
  const int64_t block = element / kPackedBlock;
  const int64_t lane = element % kPackedBlock / 8;
  const int64_t place = element % 8;
  const int64_t half = layout.nibble_order ? place % 2 : place / 4;
  const int64_t byte = layout.nibble_order ? place / 2 : place % 4;
  return block * kPackedBlock * layout.limbs + half * 64 + lane * 4 + byte;
}

// The largest k <= 126 with magnitude * 2^k <= the largest integer of that many limbs.
int shift_for(uint32_t magnitude_bits, int limbs) {
  // 127, 127 * 257 and 127 * 65793 as floats: the largest balanced integers of 1, 2 and 3 limbs.
  constexpr uint32_t kLargest[3] = {0x42FE0000u, 0x46FEFE00u, 0x4AFEFEFEu};
  const uint32_t largest = kLargest[limbs - 1];
  const int exponent = static_cast<int>(magnitude_bits >> 23);
  const bool above = (magnitude_bits & 0x7FFFFFu) > (largest & 0x7FFFFFu);
  const int shift = static_cast<int>(largest >> 23) - exponent - (above ? 1 : 0);
  return shift < 126 ? shift : 126;
}

float power_of_two(int exponent) {
  return std::bit_cast<float>(static_cast<uint32_t>(exponent + 127) << 23);
}

void store_scale(const PackedLayout& layout, std::byte* row, int64_t group, float scale,
                 float sum) {
  std::memcpy(row + layout.scales_offset + group * 4, &scale, sizeof(scale));
  std::memcpy(row + layout.sums_offset + group * 4, &sum, sizeof(sum));
}

void store_integer_sums(const PackedLayout& layout, std::byte* row, int64_t group, int32_t sum,
                        int32_t low_sum) {
  const int32_t upper = 12 * (layout.limbs == 3 ? (sum - low_sum) / 256 : sum);
  const int32_t low = 12 * low_sum;
  std::byte* out = row + layout.sums_offset + group * 4;
  std::memcpy(out, &upper, sizeof(upper));
  const int64_t padded_bytes = layout.sums_offset - layout.scales_offset;
  if (layout.limbs == 3) std::memcpy(out + padded_bytes, &low, sizeof(low));
}

void pack_group(const PackedLayout& layout, const float* x, int64_t group, std::byte* row) {
  uint32_t largest = 0;
  for (int i = 0; i < layout.group_size; ++i) {
    const uint32_t magnitude = std::bit_cast<uint32_t>(x[i]) & 0x7FFFFFFFu;
    if (magnitude > largest) largest = magnitude;
  }
  const bool finite = largest < 0x7F800000u;
  const int shift = finite ? shift_for(largest, layout.limbs) : 0;
  const float multiplier = power_of_two(shift);
  int32_t sum = 0;
  int32_t low_sum = 0;  // of the lowest limb
  for (int i = 0; i < layout.group_size; ++i) {
    auto rest = finite ? static_cast<int32_t>(std::lrint(x[i] * multiplier)) : 0;
    sum += rest;
    low_sum += static_cast<int8_t>(rest & 0xFF);
    std::byte* out = row + limb_byte(layout, group * layout.group_size + i);
    for (int limb = 0; limb < layout.limbs; ++limb) {
      const auto digit = static_cast<int8_t>(rest & 0xFF);
      out[limb * kPackedBlock] = static_cast<std::byte>(digit);
      rest = (rest - digit) / 256;
    }
  }
  const float scale = finite ? power_of_two(-shift) : NAN;
  store_scale(layout, row, group, scale, static_cast<float>(sum) * scale);
  if (layout.e2m1) store_integer_sums(layout, row, group, sum, low_sum);
}

void pack_groups(const PackedLayout& layout, const float* x, int64_t first, int64_t count,
                 std::byte* row) {
  for (int64_t i = 0; i < count; ++i) {
    pack_group(layout, x + i * layout.group_size, first + i, row);
  }
}

// Codes of one row as bytes, in the order of a packed row of one limb.
void unpack_codes(const uint8_t* codes, const AffineRows& weights, PackedLayout order,
                  uint8_t* out) {
  order.limbs = 1;
  const uint64_t mask = (uint64_t{1} << weights.bits) - 1;
  for (int64_t element = 0; element < weights.cols; element += 8) {
    uint64_t word = 0;
    std::memcpy(&word, codes + element / 8 * weights.bits, static_cast<size_t>(weights.bits));
    for (int i = 0; i < 8; ++i) {
      out[limb_byte(order, element + i)] =
          static_cast<uint8_t>((word >> (i * weights.bits)) & mask);
    }
  }
}

// Twice the value of an E2M1 code.
int8_t twice_e2m1(uint8_t code) {
  return static_cast<int8_t>(2 * to_float(E2M1{code}));
}

template <typename Code>
int32_t dot(const Code* codes, const int8_t* limb, int count) {
  int32_t sum = 0;
  for (int i = 0; i < count; ++i) sum += int32_t{codes[i]} * int32_t{limb[i]};
  return sum;
}

// float(S) of one group; codes and limbs point to the group's first lane in half 0.
template <typename Code>
float group_sum(const Code* codes, const int8_t* limbs, const PackedLayout& layout) {
  int32_t sums[3] = {};
  const int bytes = layout.group_size / 2;
  for (int limb = 0; limb < layout.limbs; ++limb) {
    const int8_t* x = limbs + limb * kPackedBlock;
    sums[limb] = dot(codes, x, bytes) + dot(codes + 64, x + 64, bytes);
  }
  if (layout.limbs == 1) return static_cast<float>(sums[0]);
  if (layout.limbs == 2) return static_cast<float>(sums[1] * 256 + sums[0]);
  return std::fma(static_cast<float>(sums[2] * 256 + sums[1]), 256.0f, static_cast<float>(sums[0]));
}

float sum_lanes(const float (&lanes)[kPackedLanes]) {
  float sum = 0;
  for (const float lane : lanes) sum += lane;
  return sum;
}

float affine_dot(const uint8_t* codes, const float* scales, const float* biases,
                 const PackedLayout& layout, const std::byte* x) {
  float lanes[kPackedLanes] = {};
  const auto* x_scales = reinterpret_cast<const float*>(x + layout.scales_offset);
  const auto* x_sums = reinterpret_cast<const float*>(x + layout.sums_offset);
  const int64_t groups_per_block = kPackedBlock / layout.group_size;
  for (int64_t group = 0; group < layout.groups; ++group) {
    const int64_t block = group / groups_per_block;
    const int64_t offset = group % groups_per_block * layout.group_size / 2;
    const auto* limbs = reinterpret_cast<const int8_t*>(x) + block * kPackedBlock * layout.limbs;
    const float sum = group_sum(codes + block * kPackedBlock + offset, limbs + offset, layout);
    float& lane = lanes[group % kPackedLanes];
    lane = std::fma(sum, scales[group] * x_scales[group], lane);
    lane = std::fma(biases[group], x_sums[group], lane);
  }
  return sum_lanes(lanes);
}

float e2m1_dot(const int8_t* codes, const float* scales, const PackedLayout& layout,
               const std::byte* x) {
  float lanes[kPackedLanes] = {};
  const auto* x_scales = reinterpret_cast<const float*>(x + layout.scales_offset);
  const int64_t groups_per_block = kPackedBlock / layout.group_size;
  for (int64_t group = 0; group < layout.groups; ++group) {
    const int64_t block = group / groups_per_block;
    const int64_t offset = group % groups_per_block * layout.group_size / 2;
    const auto* limbs = reinterpret_cast<const int8_t*>(x) + block * kPackedBlock * layout.limbs;
    const float sum = group_sum(codes + block * kPackedBlock + offset, limbs + offset, layout);
    float& lane = lanes[group % kPackedLanes];
    lane = std::fma(sum, scales[group] * x_scales[group], lane);
  }
  return sum_lanes(lanes);
}

void e2m1_rows(const AffineRows& weights, const PackedLayout& layout, const PackedTokens& tokens,
               std::byte* scratch) {
  auto* unpacked = reinterpret_cast<uint8_t*>(scratch);
  auto* codes = reinterpret_cast<int8_t*>(scratch);
  const int64_t padded = layout.blocks * kPackedBlock;
  auto* scales = reinterpret_cast<float*>(scratch + padded);
  for (int64_t n = 0; n < weights.rows; ++n) {
    unpack_codes(weights.codes + n * weights.codes_stride, weights, layout, unpacked);
    for (int64_t i = 0; i < padded; ++i) codes[i] = twice_e2m1(unpacked[i]);
    const uint8_t* row_scales = weights.scales + n * weights.scales_stride;
    for (int64_t group = 0; group < layout.groups; ++group) {
      scales[group] = load_scalar(row_scales, weights.scale_format, group);
    }
    for (int64_t t = 0; t < tokens.count; ++t) {
      tokens.y[t][tokens.y_offset + n] =
          e2m1_dot(codes, scales, layout, tokens.x[t]) * weights.multiplier;
    }
  }
}

void affine_rows(const AffineRows& weights, const PackedLayout& layout, const PackedTokens& tokens,
                 std::byte* scratch) {
  if (layout.e2m1) return e2m1_rows(weights, layout, tokens, scratch);
  auto* codes = reinterpret_cast<uint8_t*>(scratch);
  auto* scales = reinterpret_cast<float*>(scratch + layout.blocks * kPackedBlock);
  float* biases = scales + layout.groups;
  for (int64_t n = 0; n < weights.rows; ++n) {
    unpack_codes(weights.codes + n * weights.codes_stride, weights, layout, codes);
    const uint8_t* row_scales = weights.scales + n * weights.scales_stride;
    const uint8_t* row_biases = weights.biases + n * weights.biases_stride;
    for (int64_t group = 0; group < layout.groups; ++group) {
      scales[group] = load_scalar(row_scales, weights.scale_format, group);
      biases[group] = load_scalar(row_biases, weights.scale_format, group);
    }
    for (int64_t t = 0; t < tokens.count; ++t) {
      tokens.y[t][tokens.y_offset + n] = affine_dot(codes, scales, biases, layout, tokens.x[t]);
    }
  }
}

// Without a fused multiply-add in the baseline instruction set, product and sum round apart here.
float float_dot(const float* weights, const float* x, int64_t count) {
  float lanes[kPackedLanes] = {};
  int64_t k = 0;
  for (; k + kPackedLanes <= count; k += kPackedLanes) {
    for (int lane = 0; lane < kPackedLanes; ++lane) lanes[lane] += weights[k + lane] * x[k + lane];
  }
  for (int lane = 0; k + lane < count; ++lane) lanes[lane] += weights[k + lane] * x[k + lane];
  return sum_lanes(lanes);
}

// The value of a code times 2^-8, that of the codes for NaN included.
float small_e4m3(uint8_t code) {
  const auto sign = static_cast<unsigned>(code & 0x80) << 8;
  return to_float(F16{static_cast<uint16_t>(sign | static_cast<unsigned>(code & 0x7F) << 7)});
}

float block_dot(const FloatRows& weights, const float* row, const uint8_t* scales, const float* x) {
  float totals[kPackedLanes] = {};
  for (int64_t k = 0; k < weights.cols; k += weights.block_cols) {
    const float scale = load_scalar(scales, weights.scale_format, k / weights.block_cols) * 256.0f;
    float lanes[kPackedLanes] = {};
    const int64_t end = std::min(weights.cols, k + weights.block_cols);
    for (int64_t i = k; i < end || i % kPackedLanes != 0; ++i) {
      float& lane = lanes[i % kPackedLanes];
      lane = i < end ? std::fma(row[i], x[i], lane) : std::fma(0.0f, 0.0f, lane);
    }
    for (int i = 0; i < kPackedLanes; ++i) totals[i] = std::fma(lanes[i], scale, totals[i]);
  }
  return sum_lanes(totals);
}

void block_rows(const FloatRows& weights, const FloatTokens& tokens, std::byte* scratch) {
  auto* row = reinterpret_cast<float*>(scratch);
  for (int64_t n = 0; n < weights.rows; ++n) {
    const uint8_t* data = weights.data + n * weights.stride;
    for (int64_t k = 0; k < weights.cols; ++k) row[k] = small_e4m3(data[k]);
    for (int64_t t = 0; t < tokens.count; ++t) {
      tokens.y[t][tokens.y_offset + n] =
          block_dot(weights, row, scale_line(weights, n), tokens.x[t]);
    }
  }
}

void float_rows(const FloatRows& weights, const FloatTokens& tokens, bool /*fast*/,
                std::byte* scratch) {
  if (weights.format == ScalarFormat::kE4M3) return block_rows(weights, tokens, scratch);
  auto* row = reinterpret_cast<float*>(scratch);
  for (int64_t n = 0; n < weights.rows; ++n) {
    const uint8_t* data = weights.data + n * weights.stride;
    for (int64_t k = 0; k < weights.cols; ++k) row[k] = load_scalar(data, weights.format, k);
    for (int64_t t = 0; t < tokens.count; ++t) {
      tokens.y[t][tokens.y_offset + n] = float_dot(row, tokens.x[t], weights.cols);
    }
  }
}

void silu_multiply(float* inout, const float* up, int64_t count, float limit) {
  for (int64_t i = 0; i < count; ++i) {
    const float gate = std::min(inout[i], limit);
    inout[i] = gate / (1.0f + std::exp(-gate)) * std::clamp(up[i], -limit, limit);
  }
}

int64_t scratch_bytes(int64_t cols) {
  // One row: codes as bytes and two floats per group of 32, or the row as floats.
  return cols * 4 + 2 * kPackedBlock;
}

}  // namespace

LinearKernels linear_kernels_portable() {
  return {pack_groups, affine_rows, float_rows, silu_multiply, scratch_bytes};
}

}  // namespace motley
