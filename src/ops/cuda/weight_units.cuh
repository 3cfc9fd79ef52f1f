// Weights as the tensor cores take them.
//
// A unit is 8 consecutive codes of a row: `bits` bytes. It decodes to four bfloat16 pairs, pair j
// being (element j, element j + 4), because codes of up to 4 bits fall into that order with one
// shift and one logic operation. Affine codes are centred, q - 2^(bits - 1), which is exact in
// bfloat16, so scale and bias stay in float32.
#pragma once

#include <cstdint>

#include "ops/cuda/device_math.cuh"

namespace motley::cuda {

// 16 stands for bfloat16 weights, which need no scale.
inline constexpr int kPlainBits = 16;

template <int kBits>
__device__ constexpr float code_centre() {
  return kBits == kPlainBits ? 0.0f : static_cast<float>(1 << (kBits - 1));
}

__device__ inline uint32_t subtract_bf16x2(uint32_t a, uint32_t b) {
  uint32_t result;
  asm("{ .reg .b32 minus; mov.b32 minus, 0xBF80BF80; fma.rn.bf16x2 %0, %2, minus, %1; }"
      : "=r"(result)
      : "r"(a), "r"(b));
  return result;
}

__device__ inline uint32_t fma_bf16x2(uint32_t a, uint32_t b, uint32_t c) {
  uint32_t result;
  asm("fma.rn.bf16x2 %0, %1, %2, %3;" : "=r"(result) : "r"(a), "r"(b), "r"(c));
  return result;
}

// (a & mask) | bits, which the compiler would make two instructions of.
__device__ inline uint32_t mask_or(uint32_t a, uint32_t mask, uint32_t bits) {
  uint32_t result;
  asm("lop3.b32 %0, %1, %2, %3, 0xEA;" : "=r"(result) : "r"(a), "r"(mask), "r"(bits));
  return result;
}

__device__ inline uint32_t load_u32(const uint8_t* bytes) {
  return *reinterpret_cast<const uint32_t*>(bytes);
}

// The low and high four codes of a unit at any byte offset of 4-byte aligned shared memory.
template <int kBits>
__device__ inline void read_unit_words(const uint8_t* row, int unit, uint32_t* low,
                                       uint32_t* high) {
  const int offset = unit * kBits;
  const uint8_t* aligned = row + (offset & ~3);
  const int shift = (offset & 3) * 8;
  const uint32_t w0 = load_u32(aligned);
  const uint32_t w1 = load_u32(aligned + 4);
  const uint32_t first = __funnelshift_r(w0, w1, shift);
  *low = first;
  if constexpr (4 * kBits < 32) {
    uint32_t second = 0;
    if constexpr (kBits > 4) second = __funnelshift_r(w1, load_u32(aligned + 8), shift);
    *high = __funnelshift_r(first, second, 4 * kBits);
  }
}

// bits 2 to 6: every code fits the seven bits of a bfloat16 mantissa.
template <int kBits, bool kCentred>
__device__ inline void decode_narrow(uint32_t low, uint32_t high, uint32_t (&pairs)[4]) {
  constexpr uint32_t kMask = (1u << kBits) - 1u;
  constexpr uint32_t kMask2 = kMask | (kMask << 16);
  // 128 + centre, exact: subtracting it from 128 + q leaves q - centre.
  constexpr uint32_t kOffset = 0x4300u + (kCentred ? 1u << (kBits - 1) : 0u);
#pragma unroll
  for (int j = 0; j < 4; ++j) {
    uint32_t codes;
    if constexpr (kBits <= 4) {
      codes = low >> (j * kBits);
    } else {
      codes = ((low >> (j * kBits)) & kMask) | (((high >> (j * kBits)) & kMask) << 16);
    }
    pairs[j] = subtract_bf16x2(mask_or(codes, kMask2, 0x43004300u), kOffset | (kOffset << 16));
  }
}

// With the top bit of a code set, 0x4300 | (q & 127) is q itself, else it is q + 128.
__device__ inline void decode_bytes(uint32_t low, uint32_t high, uint32_t (&pairs)[4]) {
#pragma unroll
  for (int j = 0; j < 4; ++j) {
    // Byte j of each word into the low byte of each half; the other bytes are masked off below.
    const uint32_t spread = __byte_perm(low, high, 0x4400u + 0x1111u * static_cast<uint32_t>(j));
    const uint32_t value = (spread & 0x007F007Fu) | 0x43004300u;
    const uint32_t offset = (~spread & 0x00800080u) | 0x43004300u;
    pairs[j] = subtract_bf16x2(value, offset);
  }
}

// Unit `unit` of a row in shared memory. kPlainBits needs 16-byte alignment, 8 bits 8 bytes. Codes
// of up to 6 bits may be left as they are instead of centred.
template <int kBits, bool kCentred = true>
__device__ inline void decode_unit(const uint8_t* row, int unit, uint32_t (&pairs)[4]) {
  if constexpr (kBits == kPlainBits) {
    const uint4 words = *reinterpret_cast<const uint4*>(row + unit * 16);
    pairs[0] = __byte_perm(words.x, words.z, 0x5410);
    pairs[1] = __byte_perm(words.x, words.z, 0x7632);
    pairs[2] = __byte_perm(words.y, words.w, 0x5410);
    pairs[3] = __byte_perm(words.y, words.w, 0x7632);
  } else if constexpr (kBits == 8) {
    const uint2 words = *reinterpret_cast<const uint2*>(row + unit * 8);
    decode_bytes(words.x, words.y, pairs);
  } else if constexpr (kBits == 4) {
    decode_narrow<4, kCentred>(load_u32(row + unit * 4), 0, pairs);
  } else {
    uint32_t low;
    uint32_t high = 0;
    read_unit_words<kBits>(row, unit, &low, &high);
    if constexpr (kBits <= 4) {
      // Codes 4..7 into the upper half, so that one mask serves both.
      constexpr uint32_t kHalf = (1u << (4 * kBits)) - 1u;
      low = (low & kHalf) | (high << 16);
    }
    decode_narrow<kBits, kCentred>(low, high, pairs);
  }
}

// Codes as bytes for the integer kernel: `even` holds elements 0 2 4 6, `odd` 1 3 5 7.
template <int kBits>
__device__ inline void code_bytes(const uint8_t* row, int unit, uint32_t* even, uint32_t* odd) {
  if constexpr (kBits == 8) {
    const uint2 words = *reinterpret_cast<const uint2*>(row + unit * 8);
    *even = __byte_perm(words.x, words.y, 0x6420);
    *odd = __byte_perm(words.x, words.y, 0x7531);
  } else if constexpr (kBits == 4) {
    const uint32_t word = load_u32(row + unit * 4);
    *even = word & 0x0F0F0F0Fu;
    *odd = (word >> 4) & 0x0F0F0F0Fu;
  } else {
    uint32_t low;
    uint32_t high;
    read_unit_words<kBits>(row, unit, &low, &high);
    constexpr uint32_t kMask = (1u << kBits) - 1u;
    // Fields 0 and 2 of each word of four codes into two bytes.
    const auto spread = [](uint32_t word) {
      const uint32_t second = 2 * kBits <= 8 ? word << (8 - (2 * kBits <= 8 ? 2 * kBits : 8))
                                             : word >> (2 * kBits > 8 ? 2 * kBits - 8 : 0);
      return (word & kMask) | (second & (kMask << 8));
    };
    *even = spread(low) | (spread(high) << 16);
    *odd = spread(low >> kBits) | (spread(high >> kBits) << 16);
  }
}

}  // namespace motley::cuda
