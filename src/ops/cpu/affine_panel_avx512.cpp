// Many tokens: 16 output rows lie in the lanes of a vector, 4 codes deep, and meet 4 bytes of a
// token's limb broadcast to all lanes. The weights of a panel of 16 rows are unpacked once to a
// tile in the second-level cache; tokens need no copy and no padding.
#include "ops/cpu/affine_avx512.h"

namespace motley {
namespace {

constexpr int64_t kPanelRows = 16;
constexpr int64_t kMaxPanels = 4;
constexpr int64_t kTileBytes = 256 * 1024;
// A block of a tile: two halves (PackedLayout) of 16 lanes, each a vector of 16 rows by 4 codes.
// Nibbles stay packed, so that both halves share one vector per lane; the products take them apart.
constexpr int64_t kHalfBytes = 1024;
constexpr int64_t kBlockBytes = 2 * kHalfBytes;
constexpr int64_t kNibbleBlockBytes = kHalfBytes;

struct Panel {
  uint8_t* codes = nullptr;
  float* scales = nullptr;  // [groups][16 rows]
  float* biases = nullptr;
};

int64_t round_up_groups(int64_t groups) {
  return (groups + 15) / 16 * 16;
}

int64_t panel_bytes(int64_t blocks, int64_t groups) {
  return blocks * kBlockBytes + 2 * 64 * round_up_groups(groups);
}

int64_t panels_at_once(int64_t cols) {
  const int64_t fit = kTileBytes / (kPanelRows * cols);
  return fit < 1 ? 1 : fit > kMaxPanels ? kMaxPanels : fit;
}

Panel panel_at(std::byte* scratch, const PackedLayout& layout, int64_t index) {
  std::byte* base = scratch + index * panel_bytes(layout.blocks, layout.groups);
  Panel panel;
  panel.codes = reinterpret_cast<uint8_t*>(base);
  panel.scales = reinterpret_cast<float*>(base + layout.blocks * kBlockBytes);
  panel.biases = panel.scales + 16 * round_up_groups(layout.groups);
  return panel;
}

// Transposes 16 groups of 16 rows' scalars. Rows that do not exist repeat the last one.
void unpack_scalars(const uint8_t* data, int64_t stride, int64_t rows, ScalarFormat format,
                    int64_t groups, float* out) {
  const int64_t scalar_bytes = format == ScalarFormat::kF32 ? 4 : 2;
  for (int64_t first = 0; first < groups; first += 16) {
    __m512i values[16];
    for (int64_t r = 0; r < 16; ++r) {
      const uint8_t* row = data + (r < rows ? r : rows - 1) * stride;
      values[r] =
          _mm512_castps_si512(load_scalars(row + first * scalar_bytes, format, groups - first));
    }
    transpose16(values);
    for (int i = 0; i < 16; ++i) _mm512_store_si512(out + (first + i) * 16, values[i]);
  }
}

void store_lanes(const __m512i (&lanes)[16], uint8_t* out) {
  for (int i = 0; i < 16; ++i) _mm512_store_si512(out + 64 * i, lanes[i]);
}

// One block of 128 columns of 16 rows.
template <CodeWidth width>
void unpack_block(const uint8_t* const (&rows)[16], int64_t bytes, const CodeDecoder& decoder,
                  uint8_t* out) {
  __m512i low[16];
  if constexpr (width == CodeWidth::kNibble) {
    const __mmask64 mask = byte_mask(bytes);
    for (int r = 0; r < 16; ++r) low[r] = _mm512_maskz_loadu_epi8(mask, rows[r]);
    transpose16(low);
    store_lanes(low, out);
  } else {
    __m512i high[16];
    for (int r = 0; r < 16; ++r) {
      const CodeHalves halves = load_codes<width>(rows[r], bytes, decoder);
      low[r] = halves.low;
      high[r] = halves.high;
    }
    transpose16(low);
    store_lanes(low, out);
    transpose16(high);
    store_lanes(high, out + kHalfBytes);
  }
}

template <CodeWidth width>
void unpack_codes(const AffineRows& weights, int64_t first, int64_t rows,
                  const PackedLayout& layout, uint8_t* out) {
  const int64_t ahead = panels_at_once(layout.cols) * kPanelRows * weights.codes_stride;
  constexpr int64_t block_bytes = width == CodeWidth::kNibble ? kNibbleBlockBytes : kBlockBytes;
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
    unpack_block<width>(data, rest < decoder.block_bytes ? rest : decoder.block_bytes, decoder,
                        out + block * block_bytes);
  }
}

void unpack_panel(const AffineRows& weights, int64_t first, int64_t rows,
                  const PackedLayout& layout, const Panel& panel) {
  unpack_scalars(weights.scales + first * weights.scales_stride, weights.scales_stride, rows,
                 weights.scale_format, layout.groups, panel.scales);
  unpack_scalars(weights.biases + first * weights.biases_stride, weights.biases_stride, rows,
                 weights.scale_format, layout.groups, panel.biases);
  switch (code_width(weights.bits)) {
    case CodeWidth::kNibble:
      return unpack_codes<CodeWidth::kNibble>(weights, first, rows, layout, panel.codes);
    case CodeWidth::kNarrow:
      return unpack_codes<CodeWidth::kNarrow>(weights, first, rows, layout, panel.codes);
    case CodeWidth::kWide:
      return unpack_codes<CodeWidth::kWide>(weights, first, rows, layout, panel.codes);
  }
}

__m512i broadcast4(const std::byte* data) {
  int32_t value;
  __builtin_memcpy(&value, data, sizeof(value));
  return _mm512_set1_epi32(value);
}

template <int kLimbs>
__m512 integer_value(const __m512i (&sums)[kLimbs]) {
  if constexpr (kLimbs == 1) {
    return _mm512_cvtepi32_ps(sums[0]);
  } else {
    const __m512i top = _mm512_add_epi32(_mm512_slli_epi32(sums[kLimbs - 1], 8), sums[kLimbs - 2]);
    const __m512 high = _mm512_cvtepi32_ps(top);
    if constexpr (kLimbs == 2) return high;
    return _mm512_fmadd_ps(high, _mm512_set1_ps(256.0f), _mm512_cvtepi32_ps(sums[0]));
  }
}

// sums += codes * x over a group of 8 * kLanes columns; offset: bytes into each row of x.
template <bool kNibbles, int kLanes, int kLimbs, int kTokens>
inline void add_group(const uint8_t* codes, const std::byte* const (&x)[kTokens], int64_t offset,
                      __m512i (&sums)[kTokens][kLimbs]) {
  const __m512i mask = _mm512_set1_epi8(15);
#pragma GCC unroll 32
  for (int part = 0; part < 2 * kLanes; ++part) {
    const int half = part % 2;
    const int lane = part / 2;
    __m512i w;
    if constexpr (kNibbles) {
      w = _mm512_load_si512(codes + lane * 64);
      w = _mm512_and_si512(half == 0 ? w : _mm512_srli_epi16(w, 4), mask);
    } else {
      w = _mm512_load_si512(codes + half * kHalfBytes + lane * 64);
    }
    for (int t = 0; t < kTokens; ++t) {
      for (int limb = 0; limb < kLimbs; ++limb) {
        const std::byte* bytes = x[t] + offset + limb * kPackedBlock + half * 64 + lane * 4;
        sums[t][limb] = _mm512_dpbusd_epi32(sums[t][limb], w, broadcast4(bytes));
      }
    }
  }
}

// A few tokens, and where their outputs go.
struct TokenPiece {
  const std::byte* const* x;
  float* const* y;
  int64_t y_offset;
  __mmask16 rows;
};

// kTokens tokens times the 16 rows of a panel.
template <bool kNibbles, int kLanes, int kLimbs, int kTokens>
void panel_product(const Panel& panel, const PackedLayout& layout, const TokenPiece& piece) {
  constexpr int64_t kBlockGroups = 16 / kLanes;
  constexpr int64_t kTileBlock = kNibbles ? kNibbleBlockBytes : kBlockBytes;
  const std::byte* x[kTokens];
  __m512 total[kTokens];
  for (int t = 0; t < kTokens; ++t) {
    x[t] = piece.x[t];
    total[t] = _mm512_setzero_ps();
  }
  const int64_t chains = layout.groups < 16 ? layout.groups : 16;
  for (int64_t chain = 0; chain < chains; ++chain) {
    __m512 lane[kTokens];
    for (__m512& value : lane) value = _mm512_setzero_ps();
    for (int64_t group = chain; group < layout.groups; group += 16) {
      const int64_t block = group / kBlockGroups;
      const int64_t first_lane = group % kBlockGroups * kLanes;
      __m512i sums[kTokens][kLimbs];
      for (auto& token : sums) {
        for (__m512i& sum : token) sum = _mm512_setzero_si512();
      }
      add_group<kNibbles, kLanes>(panel.codes + block * kTileBlock + first_lane * 64, x,
                                  block * kPackedBlock * kLimbs + first_lane * 4, sums);
      const __m512 scales = _mm512_load_ps(panel.scales + group * 16);
      const __m512 biases = _mm512_load_ps(panel.biases + group * 16);
      for (int t = 0; t < kTokens; ++t) {
        const auto* x_scales = reinterpret_cast<const float*>(x[t] + layout.scales_offset);
        const auto* x_sums = reinterpret_cast<const float*>(x[t] + layout.sums_offset);
        const __m512 scale = _mm512_mul_ps(scales, _mm512_set1_ps(x_scales[group]));
        lane[t] = _mm512_fmadd_ps(integer_value(sums[t]), scale, lane[t]);
        lane[t] = _mm512_fmadd_ps(biases, _mm512_set1_ps(x_sums[group]), lane[t]);
      }
    }
    for (int t = 0; t < kTokens; ++t) total[t] = _mm512_add_ps(total[t], lane[t]);
  }
  for (int t = 0; t < kTokens; ++t) {
    _mm512_mask_storeu_ps(piece.y[t] + piece.y_offset, piece.rows, total[t]);
  }
}

using PanelProduct = void (*)(const Panel&, const PackedLayout&, const TokenPiece&);

// Tokens in registers at once: their sums, one per limb, and their lanes share 32 registers.
constexpr int64_t kMaxTokens = 8;
constexpr int64_t tokens_at_once(int limbs) {
  return limbs == 3 ? 6 : kMaxTokens;
}

template <bool kNibbles, int kLanes, int kLimbs>
PanelProduct choose_tokens(int64_t tokens) {
  switch (tokens) {
    case 1:
      return panel_product<kNibbles, kLanes, kLimbs, 1>;
    case 2:
      return panel_product<kNibbles, kLanes, kLimbs, 2>;
    case 3:
      return panel_product<kNibbles, kLanes, kLimbs, 3>;
    case 4:
      return panel_product<kNibbles, kLanes, kLimbs, 4>;
    case 5:
      return panel_product<kNibbles, kLanes, kLimbs, 5>;
    case 6:
      return panel_product<kNibbles, kLanes, kLimbs, 6>;
    default:
      break;
  }
  if constexpr (tokens_at_once(kLimbs) == kMaxTokens) {
    if (tokens == 7) return panel_product<kNibbles, kLanes, kLimbs, 7>;
    return panel_product<kNibbles, kLanes, kLimbs, 8>;
  }
  return nullptr;
}

template <bool kNibbles, int kLanes>
PanelProduct choose_limbs(int limbs, int64_t tokens) {
  return limbs == 1   ? choose_tokens<kNibbles, kLanes, 1>(tokens)
         : limbs == 2 ? choose_tokens<kNibbles, kLanes, 2>(tokens)
                      : choose_tokens<kNibbles, kLanes, 3>(tokens);
}

template <bool kNibbles>
PanelProduct choose_group(const PackedLayout& layout, int64_t tokens) {
  return layout.group_size == 32   ? choose_limbs<kNibbles, 4>(layout.limbs, tokens)
         : layout.group_size == 64 ? choose_limbs<kNibbles, 8>(layout.limbs, tokens)
                                   : choose_limbs<kNibbles, 16>(layout.limbs, tokens);
}

PanelProduct choose_product(const PackedLayout& layout, int64_t tokens) {
  return layout.nibble_order ? choose_group<true>(layout, tokens)
                             : choose_group<false>(layout, tokens);
}

}  // namespace

int64_t affine_panel_scratch_avx512(int64_t cols) {
  const int64_t blocks = (cols + kPackedBlock - 1) / kPackedBlock;
  return panels_at_once(cols) * panel_bytes(blocks, (cols + 31) / 32);
}

void affine_panels_avx512(const AffineRows& weights, const PackedLayout& layout,
                          const PackedTokens& tokens, std::byte* scratch) {
  const int64_t panels = panels_at_once(layout.cols);
  const int64_t most = tokens_at_once(layout.limbs);
  const int64_t pieces = (tokens.count + most - 1) / most;
  for (int64_t first = 0; first < weights.rows; first += panels * kPanelRows) {
    const int64_t rest = weights.rows - first;
    const int64_t rows = rest < panels * kPanelRows ? rest : panels * kPanelRows;
    for (int64_t row = 0; row < rows; row += kPanelRows) {
      unpack_panel(weights, first + row, rows - row < kPanelRows ? rows - row : kPanelRows, layout,
                   panel_at(scratch, layout, row / kPanelRows));
    }
    for (int64_t piece = 0; piece < pieces; ++piece) {
      // Pieces of nearly the same size: a last piece of one token would waste the registers.
      const int64_t begin = tokens.count * piece / pieces;
      const int64_t count = tokens.count * (piece + 1) / pieces - begin;
      const PanelProduct product = choose_product(layout, count);
      for (int64_t row = 0; row < rows; row += kPanelRows) {
        product(panel_at(scratch, layout, row / kPanelRows), layout,
                {tokens.x + begin, tokens.y + begin, tokens.y_offset + first + row,
                 row_mask(rows - row)});
      }
    }
  }
}

}  // namespace motley
