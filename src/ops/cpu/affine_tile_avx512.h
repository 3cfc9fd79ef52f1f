// Panels of 16 rows of MLX weights, unpacked to bytes with the rows in the lanes of a vector.
// For files built with AVX-512 only; everything is static, as in affine_avx512.h.
#pragma once

#include "ops/cpu/affine_avx512.h"

namespace motley {

constexpr int64_t kPanelRows = 16;
constexpr int64_t kMaxPanels = 4;
constexpr int64_t kTileBytes = 256 * 1024;
// Where the 32 vectors of a block go, each 16 rows by 4 codes of one lane and half (PackedLayout).
enum class TileOrder {
  kHalves,  // half 0, then half 1; nibbles stay packed, both halves in one vector
  kLanes,   // both halves of lane 0, of lane 1, ...: the rows of an AMX tile
};
constexpr int64_t kHalfBytes = 1024;
constexpr int64_t kBlockBytes = 2 * kHalfBytes;
constexpr int64_t kNibbleBlockBytes = kHalfBytes;

struct Panel {
  uint8_t* codes = nullptr;
  float* scales = nullptr;  // [groups][16 rows]
  float* biases = nullptr;
};

static inline int64_t round_up_groups(int64_t groups) {
  return (groups + 15) / 16 * 16;
}

static inline int64_t panel_bytes(int64_t blocks, int64_t groups) {
  return blocks * kBlockBytes + 2 * 64 * round_up_groups(groups);
}

static inline int64_t panels_at_once(int64_t cols) {
  const int64_t fit = kTileBytes / (kPanelRows * cols);
  return fit < 1 ? 1 : fit > kMaxPanels ? kMaxPanels : fit;
}

static inline Panel panel_at(std::byte* scratch, const PackedLayout& layout, int64_t index) {
  std::byte* base = scratch + index * panel_bytes(layout.blocks, layout.groups);
  Panel panel;
  panel.codes = reinterpret_cast<uint8_t*>(base);
  panel.scales = reinterpret_cast<float*>(base + layout.blocks * kBlockBytes);
  panel.biases = panel.scales + 16 * round_up_groups(layout.groups);
  return panel;
}

// Transposes 16 groups of 16 rows' scalars. Rows that do not exist repeat the last one.
static inline void unpack_scalars(const uint8_t* data, int64_t stride, int64_t rows,
                                  ScalarFormat format, int64_t groups, float* out) {
  const int64_t bytes = scalar_bytes(format);
  for (int64_t first = 0; first < groups; first += 16) {
    __m512i values[16];
    for (int64_t r = 0; r < 16; ++r) {
      const uint8_t* row = data + (r < rows ? r : rows - 1) * stride;
      values[r] = _mm512_castps_si512(load_scalars(row + first * bytes, format, groups - first));
    }
    transpose16(values);
    for (int i = 0; i < 16; ++i) _mm512_store_si512(out + (first + i) * 16, values[i]);
  }
}

static inline void store_lanes(const __m512i (&lanes)[16], int64_t stride, uint8_t* out) {
  for (int i = 0; i < 16; ++i) _mm512_store_si512(out + stride * i, lanes[i]);
}

// One block of 128 columns of 16 rows.
template <CodeWidth width, TileOrder order>
static inline void unpack_block(const uint8_t* const (&rows)[16], int64_t bytes,
                                const CodeDecoder& decoder, uint8_t* out) {
  constexpr int64_t stride = order == TileOrder::kLanes ? 128 : 64;
  uint8_t* high_out = out + (order == TileOrder::kLanes ? 64 : kHalfBytes);
  __m512i low[16];
  if constexpr (width == CodeWidth::kNibble) {
    const __mmask64 mask = byte_mask(bytes);
    for (int r = 0; r < 16; ++r) low[r] = _mm512_maskz_loadu_epi8(mask, rows[r]);
    transpose16(low);
    if constexpr (order == TileOrder::kHalves) return store_lanes(low, stride, out);
    for (int i = 0; i < 16; ++i) {
      const __m512i high = _mm512_srli_epi16(low[i], 4);
      _mm512_store_si512(out + stride * i, _mm512_and_si512(low[i], decoder.mask));
      _mm512_store_si512(high_out + stride * i, _mm512_and_si512(high, decoder.mask));
    }
  } else {
    __m512i high[16];
    for (int r = 0; r < 16; ++r) {
      const CodeHalves halves = load_codes<width>(rows[r], bytes, decoder);
      low[r] = halves.low;
      high[r] = halves.high;
    }
    transpose16(low);
    store_lanes(low, stride, out);
    transpose16(high);
    store_lanes(high, stride, high_out);
  }
}

template <CodeWidth width, TileOrder order>
static inline void unpack_codes(const AffineRows& weights, int64_t first, int64_t rows,
                                const PackedLayout& layout, uint8_t* out) {
  const int64_t ahead = panels_at_once(layout.cols) * kPanelRows * weights.codes_stride;
  constexpr bool packed = width == CodeWidth::kNibble && order == TileOrder::kHalves;
  constexpr int64_t block_bytes = packed ? kNibbleBlockBytes : kBlockBytes;
  const CodeDecoder decoder(weights.bits);
  const int64_t row_bytes = layout.cols * weights.bits / 8;
  for (int64_t block = 0; block < layout.blocks; ++block) {
    const int64_t offset = block * decoder.block_bytes;
    const uint8_t* data[16];
    for (int64_t r = 0; r < 16; ++r) {
      data[r] = weights.codes + (first + (r < rows ? r : rows - 1)) * weights.codes_stride + offset;
      // The rows that follow the panels now being unpacked: they arrive during the products.
      _mm_prefetch(data[r] + ahead, _MM_HINT_T1);
    }
    const int64_t rest = row_bytes - offset;
    unpack_block<width, order>(data, rest < decoder.block_bytes ? rest : decoder.block_bytes,
                               decoder, out + block * block_bytes);
  }
}

template <TileOrder order>
static inline void unpack_panel(const AffineRows& weights, int64_t first, int64_t rows,
                                const PackedLayout& layout, const Panel& panel) {
  unpack_scalars(weights.scales + first * weights.scales_stride, weights.scales_stride, rows,
                 weights.scale_format, layout.groups, panel.scales);
  if (layout.e2m1) {
    return unpack_codes<CodeWidth::kNibble, order>(weights, first, rows, layout, panel.codes);
  }
  unpack_scalars(weights.biases + first * weights.biases_stride, weights.biases_stride, rows,
                 weights.scale_format, layout.groups, panel.biases);
  switch (code_width(weights.bits)) {
    case CodeWidth::kNibble:
      return unpack_codes<CodeWidth::kNibble, order>(weights, first, rows, layout, panel.codes);
    case CodeWidth::kNarrow:
      return unpack_codes<CodeWidth::kNarrow, order>(weights, first, rows, layout, panel.codes);
    case CodeWidth::kWide:
      return unpack_codes<CodeWidth::kWide, order>(weights, first, rows, layout, panel.codes);
    case CodeWidth::kE2M1:
      return;  // no number of bits
  }
}

// float(S) from the sums of each limb, which are too large by `excess` (PackedLayout).
template <int kLimbs>
static inline __m512 e2m1_value(const __m512i (&sums)[kLimbs], __m512i excess, __m512i low_excess) {
  __m512i top = sums[kLimbs - 1];
  if constexpr (kLimbs > 1) top = _mm512_add_epi32(_mm512_slli_epi32(top, 8), sums[kLimbs - 2]);
  const __m512 high = _mm512_cvtepi32_ps(_mm512_sub_epi32(top, excess));
  if constexpr (kLimbs < 3) return high;
  return _mm512_fmadd_ps(high, _mm512_set1_ps(256.0f),
                         _mm512_cvtepi32_ps(_mm512_sub_epi32(sums[0], low_excess)));
}

// float(S) from the sums of each limb.
template <int kLimbs>
static inline __m512 integer_value(const __m512i (&sums)[kLimbs]) {
  if constexpr (kLimbs == 1) {
    return _mm512_cvtepi32_ps(sums[0]);
  } else {
    const __m512i top = _mm512_add_epi32(_mm512_slli_epi32(sums[kLimbs - 1], 8), sums[kLimbs - 2]);
    const __m512 high = _mm512_cvtepi32_ps(top);
    if constexpr (kLimbs == 2) return high;
    return _mm512_fmadd_ps(high, _mm512_set1_ps(256.0f), _mm512_cvtepi32_ps(sums[0]));
  }
}

}  // namespace motley
