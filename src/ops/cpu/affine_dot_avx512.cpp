// Few tokens: each 512-bit vector holds 64 codes along the contraction dimension. The weights of a
// row are read once for two tokens; 16 rows at a time stay in the first-level cache for the next.
#include <cstring>

#include "ops/cpu/affine_avx512.h"

namespace motley {
namespace {

// Sums of neighbours: the group sums of 16 groups end up in the 16 lanes of one vector.
__m512i merge32(__m512i a, __m512i b) {
  return _mm512_add_epi32(_mm512_unpacklo_epi32(a, b), _mm512_unpackhi_epi32(a, b));
}
__m512i merge64(__m512i a, __m512i b) {
  return _mm512_add_epi32(_mm512_unpacklo_epi64(a, b), _mm512_unpackhi_epi64(a, b));
}
__m512i merge128(__m512i a, __m512i b) {
  return _mm512_add_epi32(_mm512_shuffle_i32x4(a, b, 0x88), _mm512_shuffle_i32x4(a, b, 0xDD));
}

// The same within the lanes of 8 columns: for groups of 16.
__m512i merge16(__m512i a, __m512i b) {
  const __m512 left = _mm512_castsi512_ps(a);
  const __m512 right = _mm512_castsi512_ps(b);
  return _mm512_add_epi32(_mm512_castps_si512(_mm512_shuffle_ps(left, right, 0x88)),
                          _mm512_castps_si512(_mm512_shuffle_ps(left, right, 0xDD)));
}

// Merges the vectors of a stretch of 16 groups (kBlocks blocks) as they come.
template <int kBlocks>
struct GroupTree {
  __m512i level[4];

  // Returns true with the result in level[0] after the last block.
  void add(int block, __m512i sums) {
    if (block % 2 == 0) {
      level[0] = sums;
      return;
    }
    if constexpr (kBlocks == 2) {
      level[0] = merge16(level[0], sums);
      return;
    }
    const __m512i pair = merge32(level[0], sums);
    if (block % 4 == 1) {
      level[1] = pair;
      return;
    }
    const __m512i quad = merge64(level[1], pair);
    if (kBlocks == 4 || block % 8 == 3) {
      level[2] = quad;
      return;
    }
    const __m512i eight = merge128(level[2], quad);
    if (kBlocks == 8 || block == 7) {
      level[3] = eight;
      return;
    }
    level[3] = merge128(level[3], eight);
  }
  // Lane j: the sum of group j.
  __m512i result(__m512i order) const {
    if constexpr (kBlocks == 2) return _mm512_permutexvar_epi32(order, level[0]);
    if constexpr (kBlocks == 4) return _mm512_permutexvar_epi32(order, level[2]);
    if constexpr (kBlocks == 8) return _mm512_permutexvar_epi32(order, level[3]);
    return level[3];
  }
};

// Where group j's sum lies after the merges.
template <int kBlocks>
__m512i group_order() {
  if constexpr (kBlocks == 2) {
    return _mm512_setr_epi32(0, 1, 4, 5, 8, 9, 12, 13, 2, 3, 6, 7, 10, 11, 14, 15);
  }
  if constexpr (kBlocks == 4) {
    return _mm512_setr_epi32(0, 4, 8, 12, 1, 5, 9, 13, 2, 6, 10, 14, 3, 7, 11, 15);
  }
  return _mm512_setr_epi32(0, 4, 1, 5, 2, 6, 3, 7, 8, 12, 9, 13, 10, 14, 11, 15);
}

// code * limb summed over the block, on top of `sums`.
__m512i add_products(__m512i sums, const CodeHalves& codes, const std::byte* limb) {
  sums = _mm512_dpbusd_epi32(sums, codes.low, _mm512_load_si512(limb));
  return _mm512_dpbusd_epi32(sums, codes.high, _mm512_load_si512(limb + 64));
}

// The sums of 16 groups for one token: one integer, or two that make hi * 256 + lo.
template <int kLimbs, int kBlocks>
struct TokenSums {
  GroupTree<kBlocks> main;
  GroupTree<kLimbs == 3 ? kBlocks : 1> low;

  void add_zero(int block) {
    main.add(block, _mm512_setzero_si512());
    if constexpr (kLimbs == 3) low.add(block, _mm512_setzero_si512());
  }
  void add(int block, const CodeHalves& codes, const std::byte* x) {
    __m512i sums = _mm512_setzero_si512();
    if constexpr (kLimbs == 3) {
      low.add(block, add_products(sums, codes, x));
      x += kPackedBlock;
    }
    if constexpr (kLimbs >= 2) {
      sums = _mm512_slli_epi32(add_products(sums, codes, x + kPackedBlock), 8);
    }
    main.add(block, add_products(sums, codes, x));
  }
  // main_excess, low_excess: what the sums are too large by.
  __m512 value(__m512i order, __m512i main_excess, __m512i low_excess) const {
    const __m512 high = _mm512_cvtepi32_ps(_mm512_sub_epi32(main.result(order), main_excess));
    if constexpr (kLimbs < 3) return high;
    const __m512i rest = _mm512_sub_epi32(low.result(order), low_excess);
    return _mm512_fmadd_ps(high, _mm512_set1_ps(256.0f), _mm512_cvtepi32_ps(rest));
  }
  __m512 value(__m512i order) const {
    const __m512 high = _mm512_cvtepi32_ps(main.result(order));
    if constexpr (kLimbs < 3) return high;
    return _mm512_fmadd_ps(high, _mm512_set1_ps(256.0f), _mm512_cvtepi32_ps(low.result(order)));
  }
};

template <CodeWidth width, int kGroupSize, int kLimbs, int kTokens>
struct RowDot {
  static constexpr int kBlocks = kGroupSize / 8;  // blocks of 16 groups
  static constexpr int64_t kStep = kPackedBlock * kLimbs;

  const AffineRows& weights;
  const PackedLayout& layout;
  CodeDecoder decoder;
  const std::byte* x[kTokens];
  __m512i order = group_order<kBlocks>();

  static constexpr bool kE2M1 = width == CodeWidth::kE2M1;
  static int64_t block_bytes(const CodeDecoder& decoder) {
    return width == CodeWidth::kNibble || kE2M1 ? kPackedBlock / 2 : decoder.block_bytes;
  }
  // From the sums of the upper limbs, in a packed row, to those of the lowest.
  int64_t low_sums() const { return layout.sums_offset - layout.scales_offset; }

  // lanes[t] = the 16 lanes of row n and token t.
  void run(int64_t n, __m512 (&lanes)[kTokens]) const {
    for (__m512& lane : lanes) lane = _mm512_setzero_ps();
    const uint8_t* codes = weights.codes + n * weights.codes_stride;
    const int64_t whole = layout.cols / (16 * kGroupSize);
    for (int64_t i = 0; i < whole; ++i) {
      TokenSums<kLimbs, kBlocks> sums[kTokens];
      const int64_t bytes = block_bytes(decoder);
      const uint8_t* data = codes + i * kBlocks * bytes;
      MOTLEY_UNROLL(16)
      for (int block = 0; block < kBlocks; ++block) {
        fetch_ahead(data + block * bytes);
        const CodeHalves halves = load_codes<width>(data + block * bytes, bytes, decoder);
        for (int t = 0; t < kTokens; ++t) {
          sums[t].add(block, halves, x[t] + (i * kBlocks + block) * kStep);
        }
      }
      accumulate(n, i, 16, sums, lanes);
    }
    if (whole * 16 < layout.groups) run_rest(n, whole, codes, lanes);
  }

  // Rows n and m of 8 groups each, as in the down projections of small experts: one stretch holds
  // both, lanes[t] = 8 lanes of n, then 8 of m. The upper chains of such rows are 0.
  void run_pair(int64_t n, int64_t m, __m512 (&lanes)[kTokens]) const {
    TokenSums<kLimbs, kBlocks> sums[kTokens];
    const int64_t bytes = block_bytes(decoder);
    MOTLEY_UNROLL(16)
    for (int block = 0; block < kBlocks; ++block) {
      const int of_row = block % (kBlocks / 2);
      const uint8_t* data =
          weights.codes + (block < kBlocks / 2 ? n : m) * weights.codes_stride + of_row * bytes;
      fetch_ahead(data);
      const CodeHalves halves = load_codes<width>(data, bytes, decoder);
      for (int t = 0; t < kTokens; ++t) sums[t].add(block, halves, x[t] + of_row * kStep);
    }
    const __m512 scales = pair_scalars(weights.scales, weights.scales_stride, n, m);
    if constexpr (kE2M1) {
      for (int t = 0; t < kTokens; ++t) {
        const std::byte* excess = x[t] + layout.sums_offset;
        const __m512i low = kLimbs < 3 ? __m512i{} : twice_integers(excess + low_sums());
        lanes[t] = _mm512_fmadd_ps(sums[t].value(order, twice_integers(excess), low),
                                   _mm512_mul_ps(scales, twice(x[t] + layout.scales_offset)),
                                   _mm512_setzero_ps());
      }
      return;
    }
    const __m512 biases = pair_scalars(weights.biases, weights.biases_stride, n, m);
    for (int t = 0; t < kTokens; ++t) {
      const __m512 x_scales = twice(x[t] + layout.scales_offset);
      const __m512 x_sums = twice(x[t] + layout.sums_offset);
      lanes[t] = _mm512_fmadd_ps(sums[t].value(order), _mm512_mul_ps(scales, x_scales),
                                 _mm512_setzero_ps());
      lanes[t] = _mm512_fmadd_ps(biases, x_sums, lanes[t]);
    }
  }

  __m512 pair_scalars(const uint8_t* data, int64_t stride, int64_t n, int64_t m) const {
    _mm_prefetch(data + (n + 4 * kPrefetchRows) * stride, _MM_HINT_T0);
    const __m512 first = load_scalars(data + n * stride, weights.scale_format, 8);
    const __m512 second = load_scalars(data + m * stride, weights.scale_format, 8);
    return _mm512_shuffle_f32x4(first, second, 0x44);
  }
  static __m512 twice(const std::byte* eight_floats) {
    return _mm512_broadcast_f32x8(_mm256_load_ps(reinterpret_cast<const float*>(eight_floats)));
  }

  static __m512i twice_integers(const std::byte* eight) {
    return _mm512_broadcast_i64x4(_mm256_load_si256(reinterpret_cast<const __m256i*>(eight)));
  }

  // The last stretch of fewer than 16 groups.
  void run_rest(int64_t n, int64_t i, const uint8_t* codes, __m512 (&lanes)[kTokens]) const {
    TokenSums<kLimbs, kBlocks> sums[kTokens];
    const int64_t first = i * kBlocks;
    const int64_t row_bytes = layout.cols * weights.bits / 8;
    MOTLEY_UNROLL(16)
    for (int block = 0; block < kBlocks; ++block) {
      const int64_t offset = (first + block) * decoder.block_bytes;
      if (offset >= row_bytes) {
        for (int t = 0; t < kTokens; ++t) sums[t].add_zero(block);
        continue;
      }
      _mm_prefetch(codes + offset + kPrefetchBytes, _MM_HINT_T0);
      const int64_t bytes =
          row_bytes - offset < decoder.block_bytes ? row_bytes - offset : decoder.block_bytes;
      const CodeHalves halves = load_codes<width>(codes + offset, bytes, decoder);
      for (int t = 0; t < kTokens; ++t) sums[t].add(block, halves, x[t] + (first + block) * kStep);
    }
    accumulate(n, i, layout.groups - i * 16, sums, lanes);
  }

  void accumulate(int64_t n, int64_t i, int64_t groups,
                  const TokenSums<kLimbs, kBlocks> (&sums)[kTokens],
                  __m512 (&lanes)[kTokens]) const {
    const int64_t offset = i * 16 * scalar_bytes(weights.scale_format);
    const uint8_t* scale_data = weights.scales + n * weights.scales_stride + offset;
    _mm_prefetch(scale_data + kPrefetchRows * weights.scales_stride, _MM_HINT_T0);
    const __m512 scales = load_scalars(scale_data, weights.scale_format, groups);
    if constexpr (kE2M1) {
      for (int t = 0; t < kTokens; ++t) {
        const std::byte* excess = x[t] + layout.sums_offset + i * 64;
        const __m512i low = kLimbs < 3 ? __m512i{} : _mm512_load_si512(excess + low_sums());
        const __m512 x_scales = _mm512_load_ps(x[t] + layout.scales_offset + i * 64);
        lanes[t] = _mm512_fmadd_ps(sums[t].value(order, _mm512_load_si512(excess), low),
                                   _mm512_mul_ps(scales, x_scales), lanes[t]);
      }
      return;
    }
    const uint8_t* bias_data = weights.biases + n * weights.biases_stride + offset;
    _mm_prefetch(bias_data + kPrefetchRows * weights.biases_stride, _MM_HINT_T0);
    const __m512 biases = load_scalars(bias_data, weights.scale_format, groups);
    for (int t = 0; t < kTokens; ++t) {
      const __m512 x_scales = _mm512_load_ps(x[t] + layout.scales_offset + i * 64);
      const __m512 x_sums = _mm512_load_ps(x[t] + layout.sums_offset + i * 64);
      lanes[t] = _mm512_fmadd_ps(sums[t].value(order), _mm512_mul_ps(scales, x_scales), lanes[t]);
      lanes[t] = _mm512_fmadd_ps(biases, x_sums, lanes[t]);
    }
  }

  // To the second-level cache in time, to the first just before use.
  static void fetch_ahead(const uint8_t* codes) {
    _mm_prefetch(codes + kFarBytes, _MM_HINT_T1);
    _mm_prefetch(codes + kPrefetchBytes, _MM_HINT_T0);
  }

  static constexpr int64_t kPrefetchBytes = 4096;
  static constexpr int64_t kFarBytes = 16384;
  static constexpr int64_t kPrefetchRows = 8;  // of scales and biases
};

template <CodeWidth width, int kGroupSize, int kLimbs, int kTokens>
void dot_tokens(const AffineRows& weights, const PackedLayout& layout, const CodeDecoder& decoder,
                const PackedTokens& tokens, int64_t first_token, int64_t first_row) {
  RowDot<width, kGroupSize, kLimbs, kTokens> dot{weights, layout, decoder, {}};
  for (int t = 0; t < kTokens; ++t) dot.x[t] = tokens.x[first_token + t];
  const int64_t rows = weights.rows - first_row < 16 ? weights.rows - first_row : 16;
  alignas(64) float lanes[kTokens][16][16];
  const bool pairs = layout.groups == 8 && layout.cols == 8 * kGroupSize;
  if (pairs || rows < 16) std::memset(lanes, 0, sizeof(lanes));
  for (int64_t r = 0; pairs && r < rows; r += 2) {
    __m512 sums[kTokens];
    dot.run_pair(first_row + r, first_row + (r + 1 < rows ? r + 1 : r), sums);
    for (int t = 0; t < kTokens; ++t) {
      _mm256_store_ps(lanes[t][r], _mm512_castps512_ps256(sums[t]));
      _mm256_store_ps(lanes[t][r + 1], _mm512_extractf32x8_ps(sums[t], 1));
    }
  }
  for (int64_t r = 0; !pairs && r < rows; ++r) {
    __m512 sums[kTokens];
    dot.run(first_row + r, sums);
    for (int t = 0; t < kTokens; ++t) _mm512_store_ps(lanes[t][r], sums[t]);
  }
  for (int t = 0; t < kTokens; ++t) {
    _mm512_mask_storeu_ps(tokens.y[first_token + t] + tokens.y_offset + first_row, row_mask(rows),
                          _mm512_mul_ps(sum_lanes(lanes[t]), _mm512_set1_ps(weights.multiplier)));
  }
}

template <CodeWidth width, int kGroupSize, int kLimbs>
void dot_rows(const AffineRows& weights, const PackedLayout& layout, const PackedTokens& tokens) {
  const CodeDecoder decoder(weights.bits);
  for (int64_t row = 0; row < weights.rows; row += 16) {
    int64_t t = 0;
    for (; t + 2 <= tokens.count; t += 2) {
      dot_tokens<width, kGroupSize, kLimbs, 2>(weights, layout, decoder, tokens, t, row);
    }
    if (t < tokens.count) {
      dot_tokens<width, kGroupSize, kLimbs, 1>(weights, layout, decoder, tokens, t, row);
    }
  }
}

template <CodeWidth width, int kGroupSize>
void choose_limbs(const AffineRows& weights, const PackedLayout& layout,
                  const PackedTokens& tokens) {
  if (layout.limbs == 1) return dot_rows<width, kGroupSize, 1>(weights, layout, tokens);
  if (layout.limbs == 2) return dot_rows<width, kGroupSize, 2>(weights, layout, tokens);
  dot_rows<width, kGroupSize, 3>(weights, layout, tokens);
}

template <CodeWidth width>
void choose_group(const AffineRows& weights, const PackedLayout& layout,
                  const PackedTokens& tokens) {
  if (layout.group_size == 32) return choose_limbs<width, 32>(weights, layout, tokens);
  if (layout.group_size == 64) return choose_limbs<width, 64>(weights, layout, tokens);
  choose_limbs<width, 128>(weights, layout, tokens);
}

}  // namespace

void affine_dot_avx512(const AffineRows& weights, const PackedLayout& layout,
                       const PackedTokens& tokens) {
  if (layout.e2m1 && layout.group_size == 16) {
    return choose_limbs<CodeWidth::kE2M1, 16>(weights, layout, tokens);
  }
  if (layout.e2m1) return choose_limbs<CodeWidth::kE2M1, 32>(weights, layout, tokens);
  switch (code_width(weights.bits)) {
    case CodeWidth::kNibble:
      return choose_group<CodeWidth::kNibble>(weights, layout, tokens);
    case CodeWidth::kNarrow:
      return choose_group<CodeWidth::kNarrow>(weights, layout, tokens);
    case CodeWidth::kWide:
      return choose_group<CodeWidth::kWide>(weights, layout, tokens);
    case CodeWidth::kE2M1:
      return;  // no number of bits
  }
}

}  // namespace motley
