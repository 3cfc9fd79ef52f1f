// Many tokens: 16 output rows lie in the lanes of a vector, 4 codes deep, and meet 4 bytes of a
// token's limb broadcast to all lanes. The weights of a panel of 16 rows are unpacked once to a
// tile in the second-level cache; tokens need no copy and no padding.
#include "ops/cpu/affine_tile_avx512.h"

namespace motley {
namespace {

enum class TileCodes { kBytes, kNibbles, kE2M1 };

__m512i broadcast4(const std::byte* data) {
  int32_t value;
  __builtin_memcpy(&value, data, sizeof(value));
  return _mm512_set1_epi32(value);
}

// sums += codes * x over a group of 8 * kLanes columns; offset: bytes into each row of x.
template <TileCodes kCodes, int kLanes, int kLimbs, int kTokens>
inline void add_group(const uint8_t* codes, const std::byte* const (&x)[kTokens], int64_t offset,
                      __m512i (&sums)[kTokens][kLimbs]) {
  const __m512i mask = _mm512_set1_epi8(15);
  MOTLEY_UNROLL(32)
  for (int part = 0; part < 2 * kLanes; ++part) {
    const int half = part % 2;
    const int lane = part / 2;
    __m512i w;
    if constexpr (kCodes != TileCodes::kBytes) {
      w = _mm512_load_si512(codes + lane * 64);
      w = _mm512_and_si512(half == 0 ? w : _mm512_srli_epi16(w, 4), mask);
      if constexpr (kCodes == TileCodes::kE2M1) w = e2m1_codes(w);
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

// One group of E2M1 codes joins its lane.
template <int kLimbs>
inline void add_e2m1_group(const PackedLayout& layout, const std::byte* x, int64_t group,
                           const __m512i (&sums)[kLimbs], __m512 scales, __m512* lane) {
  const auto* x_scales = reinterpret_cast<const float*>(x + layout.scales_offset);
  const std::byte* excess = x + layout.sums_offset + group * 4;
  const std::byte* low = excess + layout.sums_offset - layout.scales_offset;
  const __m512 value =
      e2m1_value(sums, broadcast4(excess), kLimbs == 3 ? broadcast4(low) : _mm512_setzero_si512());
  *lane = _mm512_fmadd_ps(value, _mm512_mul_ps(scales, _mm512_set1_ps(x_scales[group])), *lane);
}

// A few tokens, and where their outputs go.
struct TokenPiece {
  const std::byte* const* x;
  float* const* y;
  int64_t y_offset;
  __mmask16 rows;
  float multiplier;
};

// kTokens tokens times the 16 rows of a panel.
template <TileCodes kCodes, int kLanes, int kLimbs, int kTokens>
void panel_product(const Panel& panel, const PackedLayout& layout, const TokenPiece& piece) {
  constexpr int64_t kBlockGroups = 16 / kLanes;
  constexpr int64_t kTileBlock = kCodes == TileCodes::kBytes ? kBlockBytes : kNibbleBlockBytes;
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
      add_group<kCodes, kLanes>(panel.codes + block * kTileBlock + first_lane * 64, x,
                                block * kPackedBlock * kLimbs + first_lane * 4, sums);
      const __m512 scales = _mm512_load_ps(panel.scales + group * 16);
      if constexpr (kCodes == TileCodes::kE2M1) {
        for (int t = 0; t < kTokens; ++t) {
          add_e2m1_group(layout, x[t], group, sums[t], scales, &lane[t]);
        }
        continue;
      }
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
    _mm512_mask_storeu_ps(piece.y[t] + piece.y_offset, piece.rows,
                          _mm512_mul_ps(total[t], _mm512_set1_ps(piece.multiplier)));
  }
}

using PanelProduct = void (*)(const Panel&, const PackedLayout&, const TokenPiece&);

// Tokens in registers at once: their sums, one per limb, and their lanes share 32 registers.
constexpr int64_t kMaxTokens = 8;
constexpr int64_t tokens_at_once(int limbs) {
  return limbs == 3 ? 6 : kMaxTokens;
}

template <TileCodes kCodes, int kLanes, int kLimbs>
PanelProduct choose_tokens(int64_t tokens) {
  switch (tokens) {
    case 1:
      return panel_product<kCodes, kLanes, kLimbs, 1>;
    case 2:
      return panel_product<kCodes, kLanes, kLimbs, 2>;
    case 3:
      return panel_product<kCodes, kLanes, kLimbs, 3>;
    case 4:
      return panel_product<kCodes, kLanes, kLimbs, 4>;
    case 5:
      return panel_product<kCodes, kLanes, kLimbs, 5>;
    case 6:
      return panel_product<kCodes, kLanes, kLimbs, 6>;
    default:
      break;
  }
  if constexpr (tokens_at_once(kLimbs) == kMaxTokens) {
    if (tokens == 7) return panel_product<kCodes, kLanes, kLimbs, 7>;
    return panel_product<kCodes, kLanes, kLimbs, 8>;
  }
  return nullptr;
}

template <TileCodes kCodes, int kLanes>
PanelProduct choose_limbs(int limbs, int64_t tokens) {
  return limbs == 1   ? choose_tokens<kCodes, kLanes, 1>(tokens)
         : limbs == 2 ? choose_tokens<kCodes, kLanes, 2>(tokens)
                      : choose_tokens<kCodes, kLanes, 3>(tokens);
}

template <TileCodes kCodes>
PanelProduct choose_group(const PackedLayout& layout, int64_t tokens) {
  return layout.group_size == 32   ? choose_limbs<kCodes, 4>(layout.limbs, tokens)
         : layout.group_size == 64 ? choose_limbs<kCodes, 8>(layout.limbs, tokens)
                                   : choose_limbs<kCodes, 16>(layout.limbs, tokens);
}

PanelProduct choose_product(const PackedLayout& layout, int64_t tokens) {
  if (layout.e2m1) {
    return layout.group_size == 16 ? choose_limbs<TileCodes::kE2M1, 2>(layout.limbs, tokens)
                                   : choose_limbs<TileCodes::kE2M1, 4>(layout.limbs, tokens);
  }
  return layout.nibble_order ? choose_group<TileCodes::kNibbles>(layout, tokens)
                             : choose_group<TileCodes::kBytes>(layout, tokens);
}

}  // namespace

int64_t affine_panel_scratch_avx512(int64_t cols) {
  const int64_t blocks = (cols + kPackedBlock - 1) / kPackedBlock;
  return panels_at_once(cols) * panel_bytes(blocks, (cols + 15) / 16);
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
      unpack_panel<TileOrder::kHalves>(weights, first + row,
                                       rows - row < kPanelRows ? rows - row : kPanelRows, layout,
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
                 row_mask(rows - row), weights.multiplier});
      }
    }
  }
}

}  // namespace motley
