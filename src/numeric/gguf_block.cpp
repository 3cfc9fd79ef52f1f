#include "numeric/gguf_block.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>

#include "base/check.h"
#include "numeric/half.h"

namespace motley {
namespace {

constexpr std::array kFacts = {
    GgufBlockFacts{GgufType::kQ4_0, "Q4_0", 32, 18, 32, 4},
    GgufBlockFacts{GgufType::kQ8_0, "Q8_0", 32, 34, 32, 8},
    GgufBlockFacts{GgufType::kQ4K, "Q4_K", 256, 144, 32, 4},
    GgufBlockFacts{GgufType::kQ5K, "Q5_K", 256, 176, 32, 5},
    GgufBlockFacts{GgufType::kQ6K, "Q6_K", 256, 210, 16, 6},
};

// Where the fields of a block begin.
constexpr int kQ6Low = 0, kQ6High = 128, kQ6Scales = 192, kQ6D = 208;
constexpr int kKScales = 4, kQ4Codes = 16, kQ5High = 16, kQ5Codes = 48;

float half_at(const uint8_t* data) {
  F16 value;
  std::memcpy(&value, data, sizeof(value));
  return to_float(value);
}

void put_half(uint8_t* data, F16 value) {
  std::memcpy(data, &value, sizeof(value));
}

struct ScaleMin {
  uint8_t scale;
  uint8_t min;
};

// Six bits each of group `index` from the 12 bytes: the upper two bits of groups 4 to 7 lie above
// those of groups 0 to 3.
ScaleMin scale_min(const uint8_t* data, int index) {
  if (index < 4) {
    return {static_cast<uint8_t>(data[index] & 63), static_cast<uint8_t>(data[index + 4] & 63)};
  }
  return {static_cast<uint8_t>((data[index + 4] & 15) | ((data[index - 4] >> 6) << 4)),
          static_cast<uint8_t>((data[index + 4] >> 4) | ((data[index] >> 6) << 4))};
}

void put_scale_min(uint8_t* data, int index, ScaleMin value) {
  if (index < 4) {
    data[index] = static_cast<uint8_t>(data[index] | value.scale);
    data[index + 4] = static_cast<uint8_t>(data[index + 4] | value.min);
    return;
  }
  data[index + 4] = static_cast<uint8_t>((value.scale & 15) | ((value.min & 15) << 4));
  data[index - 4] = static_cast<uint8_t>(data[index - 4] | ((value.scale >> 4) << 6));
  data[index] = static_cast<uint8_t>(data[index] | ((value.min >> 4) << 6));
}

void unpack_k_scales(const uint8_t* block, GgufGroups* out) {
  const float d = half_at(block);
  const float min = half_at(block + 2);
  for (int group = 0; group < 8; ++group) {
    const ScaleMin packed = scale_min(block + kKScales, group);
    out->scales[group] = d * static_cast<float>(packed.scale);
    out->biases[group] = -(min * static_cast<float>(packed.min));
  }
}

void unpack_q4_0(const uint8_t* block, GgufGroups* out) {
  out->scales[0] = half_at(block);
  out->biases[0] = -8.0f * out->scales[0];
  for (int i = 0; i < 16; ++i) {
    out->codes[i] = block[2 + i] & 15;
    out->codes[16 + i] = block[2 + i] >> 4;
  }
}

void unpack_q8_0(const uint8_t* block, GgufGroups* out) {
  out->scales[0] = half_at(block);
  out->biases[0] = -128.0f * out->scales[0];
  for (int i = 0; i < 32; ++i) out->codes[i] = block[2 + i] ^ 0x80;
}

void unpack_q4_k(const uint8_t* block, GgufGroups* out) {
  unpack_k_scales(block, out);
  for (int chunk = 0; chunk < 4; ++chunk) {
    const uint8_t* codes = block + kQ4Codes + 32 * chunk;
    for (int i = 0; i < 32; ++i) {
      out->codes[64 * chunk + i] = codes[i] & 15;
      out->codes[64 * chunk + 32 + i] = codes[i] >> 4;
    }
  }
}

void unpack_q5_k(const uint8_t* block, GgufGroups* out) {
  unpack_k_scales(block, out);
  const uint8_t* high = block + kQ5High;
  for (int chunk = 0; chunk < 4; ++chunk) {
    const uint8_t* codes = block + kQ5Codes + 32 * chunk;
    for (int i = 0; i < 32; ++i) {
      const int bits = high[i] >> (2 * chunk);
      out->codes[64 * chunk + i] = static_cast<uint8_t>((codes[i] & 15) | ((bits & 1) << 4));
      out->codes[64 * chunk + 32 + i] = static_cast<uint8_t>((codes[i] >> 4) | ((bits & 2) << 3));
    }
  }
}

void unpack_q6_k(const uint8_t* block, GgufGroups* out) {
  const float d = half_at(block + kQ6D);
  for (int group = 0; group < 16; ++group) {
    out->scales[group] = d * static_cast<float>(static_cast<int8_t>(block[kQ6Scales + group]));
    out->biases[group] = -32.0f * out->scales[group];
  }
  for (int half = 0; half < 2; ++half) {
    const uint8_t* low = block + kQ6Low + 64 * half;
    const uint8_t* high = block + kQ6High + 32 * half;
    uint8_t* codes = out->codes + 128 * half;
    for (int i = 0; i < 32; ++i) {
      codes[i] = static_cast<uint8_t>((low[i] & 15) | ((high[i] & 3) << 4));
      codes[32 + i] = static_cast<uint8_t>((low[32 + i] & 15) | ((high[i] & 12) << 2));
      codes[64 + i] = static_cast<uint8_t>((low[i] >> 4) | (high[i] & 48));
      codes[96 + i] = static_cast<uint8_t>((low[32 + i] >> 4) | ((high[i] & 192) >> 2));
    }
  }
}

template <typename T>
void decode_block(GgufType type, const uint8_t* block, T* out) {
  GgufGroups groups;
  gguf_unpack(type, block, &groups);
  const GgufBlockFacts& facts = gguf_facts(type);
  for (int64_t i = 0; i < facts.values; ++i) {
    const auto group = static_cast<size_t>(i) / static_cast<size_t>(facts.group_size);
    out[i] = std::fma(static_cast<T>(groups.scales[group]), static_cast<T>(groups.codes[i]),
                      static_cast<T>(groups.biases[group]));
  }
}

// round((value - bias) / scale) within [0, most]; 0 for a scale of 0.
uint8_t code_of(float value, float scale, float bias, int most) {
  if (scale == 0) return 0;
  const float code = std::nearbyint((value - bias) / scale);
  return static_cast<uint8_t>(std::clamp(code, 0.0f, static_cast<float>(most)));
}

float largest_of(std::span<const float> values) {  // by magnitude, with its sign
  return *std::max_element(values.begin(), values.end(),
                           [](float a, float b) { return std::fabs(a) < std::fabs(b); });
}

void encode_q4_0(std::span<const float> values, uint8_t* block) {
  const F16 d = to_f16(largest_of(values) / -8.0f);
  const float scale = to_float(d);
  put_half(block, d);
  for (size_t i = 0; i < 16; ++i) {
    const uint8_t low = code_of(values[i], scale, -8 * scale, 15);
    const uint8_t high = code_of(values[16 + i], scale, -8 * scale, 15);
    block[2 + i] = static_cast<uint8_t>(low | (high << 4));
  }
}

void encode_q8_0(std::span<const float> values, uint8_t* block) {
  const F16 d = to_f16(std::fabs(largest_of(values)) / 127.0f);
  const float scale = to_float(d);
  put_half(block, d);
  for (size_t i = 0; i < 32; ++i) {
    block[2 + i] = code_of(values[i], scale, -128 * scale, 255) ^ 0x80;
  }
}

// d, dmin and the packed scales of Q4_K and Q5_K, then the code of each value.
void encode_k(std::span<const float> values, int most, uint8_t* block, uint8_t* codes) {
  float scales[8];
  float mins[8];
  for (size_t group = 0; group < 8; ++group) {
    const auto part = values.subspan(32 * group, 32);
    const auto [low, high] = std::minmax_element(part.begin(), part.end());
    mins[group] = std::max(0.0f, -*low);
    scales[group] = std::max(0.0f, *high + mins[group]) / static_cast<float>(most);
  }
  const F16 d = to_f16(*std::max_element(scales, scales + 8) / 63.0f);
  const F16 dmin = to_f16(*std::max_element(mins, mins + 8) / 63.0f);
  put_half(block, d);
  put_half(block + 2, dmin);
  std::memset(block + kKScales, 0, 12);
  for (int group = 0; group < 8; ++group) {
    const ScaleMin packed{code_of(scales[group], to_float(d), 0, 63),
                          code_of(mins[group], to_float(dmin), 0, 63)};
    put_scale_min(block + kKScales, group, packed);
    const float scale = to_float(d) * static_cast<float>(packed.scale);
    const float bias = -to_float(dmin) * static_cast<float>(packed.min);
    for (int i = 32 * group; i < 32 * (group + 1); ++i) {
      codes[i] = code_of(values[static_cast<size_t>(i)], scale, bias, most);
    }
  }
}

void encode_q4_k(std::span<const float> values, uint8_t* block) {
  uint8_t codes[256];
  encode_k(values, 15, block, codes);
  for (int i = 0; i < 128; ++i) {
    const int at = i / 32 * 64 + i % 32;
    block[kQ4Codes + i] = static_cast<uint8_t>(codes[at] | (codes[at + 32] << 4));
  }
}

void encode_q5_k(std::span<const float> values, uint8_t* block) {
  uint8_t codes[256];
  encode_k(values, 31, block, codes);
  std::memset(block + kQ5High, 0, 32);
  for (int i = 0; i < 128; ++i) {
    const int at = i / 32 * 64 + i % 32;
    block[kQ5Codes + i] = static_cast<uint8_t>((codes[at] & 15) | ((codes[at + 32] & 15) << 4));
    const int bits = (codes[at] >> 4) | ((codes[at + 32] >> 4) << 1);
    block[kQ5High + i % 32] =
        static_cast<uint8_t>(block[kQ5High + i % 32] | (bits << (i / 32 * 2)));
  }
}

void encode_q6_k(std::span<const float> values, uint8_t* block) {
  float scales[16];
  for (size_t group = 0; group < 16; ++group) {
    scales[group] = largest_of(values.subspan(16 * group, 16)) / -32.0f;
  }
  const F16 d = to_f16(largest_of(scales) / -128.0f);
  put_half(block + kQ6D, d);
  uint8_t codes[256];
  for (int group = 0; group < 16; ++group) {
    const uint8_t packed = code_of(scales[group], to_float(d), -128 * to_float(d), 255) ^ 0x80;
    block[kQ6Scales + group] = packed;
    const float scale = to_float(d) * static_cast<float>(static_cast<int8_t>(packed));
    for (int i = 16 * group; i < 16 * (group + 1); ++i) {
      codes[i] = scale == 0 ? uint8_t{32}
                            : code_of(values[static_cast<size_t>(i)], scale, -32 * scale, 63);
    }
  }
  for (int i = 0; i < 64; ++i) {
    const int half = i / 32;
    const uint8_t* from = codes + 128 * half + i % 32;
    uint8_t* low = block + kQ6Low + 64 * half + i % 32;
    low[0] = static_cast<uint8_t>((from[0] & 15) | ((from[64] & 15) << 4));
    low[32] = static_cast<uint8_t>((from[32] & 15) | ((from[96] & 15) << 4));
    block[kQ6High + i] = static_cast<uint8_t>((from[0] >> 4) | ((from[32] >> 4) << 2) |
                                              ((from[64] >> 4) << 4) | ((from[96] >> 4) << 6));
  }
}

}  // namespace

const GgufBlockFacts& gguf_facts(GgufType type) {
  const auto index = static_cast<size_t>(type);
  MOTLEY_CHECK(index < kFacts.size() && kFacts[index].type == type, "table order");
  return kFacts[index];
}

std::optional<GgufType> gguf_type_from_name(std::string_view name) {
  for (const GgufBlockFacts& facts : kFacts) {
    if (facts.name == name) return facts.type;
  }
  return std::nullopt;
}

void gguf_unpack(GgufType type, const uint8_t* block, GgufGroups* out) {
  switch (type) {
    case GgufType::kQ4_0:
      return unpack_q4_0(block, out);
    case GgufType::kQ8_0:
      return unpack_q8_0(block, out);
    case GgufType::kQ4K:
      return unpack_q4_k(block, out);
    case GgufType::kQ5K:
      return unpack_q5_k(block, out);
    case GgufType::kQ6K:
      return unpack_q6_k(block, out);
  }
}

void gguf_decode(GgufType type, const uint8_t* block, float* out) {
  decode_block(type, block, out);
}
void gguf_decode(GgufType type, const uint8_t* block, double* out) {
  decode_block(type, block, out);
}

int64_t find_bad_gguf_block(GgufType type, const uint8_t* blocks, int64_t count) {
  const GgufBlockFacts& facts = gguf_facts(type);
  const bool has_min = type == GgufType::kQ4K || type == GgufType::kQ5K;
  const int64_t d = type == GgufType::kQ6K ? kQ6D : 0;
  for (int64_t i = 0; i < count; ++i) {
    const uint8_t* block = blocks + i * facts.bytes;
    if (!std::isfinite(half_at(block + d))) return i;
    if (has_min && !std::isfinite(half_at(block + 2))) return i;
  }
  return -1;
}

void gguf_encode(GgufType type, std::span<const float> values, uint8_t* block) {
  MOTLEY_CHECK(static_cast<int64_t>(values.size()) == gguf_facts(type).values, "not one block");
  switch (type) {
    case GgufType::kQ4_0:
      return encode_q4_0(values, block);
    case GgufType::kQ8_0:
      return encode_q8_0(values, block);
    case GgufType::kQ4K:
      return encode_q4_k(values, block);
    case GgufType::kQ5K:
      return encode_q5_k(values, block);
    case GgufType::kQ6K:
      return encode_q6_k(values, block);
  }
}

}  // namespace motley
