// Integer limbs on a unit that multiplies tiles: 16 rows by 64 codes (unsigned) times 64 bytes of
// one limb (signed) by 16 tokens. The sums of a group leave the unit as exact integers and join the
// same float chains as everywhere, so the bits are those of the other sets.
//
// The including file defines `Tiles` in its unnamed namespace before:
//   void configure(int a, int b, int depth_bytes);  // tiles [a, b) hold weights, those from b on x
//   void release();
//   void load<tile>(const void*); void zero<tile>(); void store<tile>(void*);  // rows 64 bytes
//   apart void multiply_bytes<c, a, b>(); void multiply_bf16<c, a, b>();
#pragma once

#include "ops/cpu/tile_layout_inl.h"

namespace motley {
namespace {

constexpr int64_t kMaxRowTiles = 4;
constexpr int64_t kPairPieces = 2;  // pieces of x that share a pass over the weights' tiles
constexpr int64_t kTileFloats = 256;

// Weights of some tiles of 16 rows: codes [row tile][tile], scalars [row tile][row][group].
struct IntegerWeights {
  uint8_t* codes;
  float* scales;
  float* biases;
  int64_t codes_stride;   // bytes from one row tile to the next
  int64_t scalar_stride;  // floats from one row to the next
};

// Of sums two, so that the unit fills one while the other is read.
struct IntegerScratch {
  int32_t* sums[2];  // [limb][row][token] of one group
  float* lanes;      // [row][token] of one chain
  float* totals;     // [row tile][piece][row][token]
  IntegerWeights weights;
};

constexpr int64_t kFixedBytes = 2 * 3 * kTile + kTile + kMaxRowTiles * kPairPieces * kTile;

int64_t row_tiles_at_once(int64_t cols) {
  return panels_at_once(cols);
}

int64_t integer_scratch_bytes(int64_t cols) {
  const int64_t blocks = (cols + kPackedBlock - 1) / kPackedBlock;
  const int64_t scalars = 2 * 16 * round_up_groups((cols + 31) / 32) * 4;
  return kFixedBytes + row_tiles_at_once(cols) * (blocks * 4 * kTile + scalars);
}

IntegerScratch integer_scratch(const PackedLayout& layout, std::byte* base) {
  const int64_t row_tiles = row_tiles_at_once(layout.cols);
  auto* sums = reinterpret_cast<int32_t*>(base);
  auto* lanes = reinterpret_cast<float*>(base + 6 * kTile);
  IntegerWeights weights{};
  weights.codes = reinterpret_cast<uint8_t*>(base + kFixedBytes);
  weights.codes_stride = layout.blocks * TileShape(layout).block_tiles() * kTile;
  weights.scalar_stride = round_up_groups(layout.groups);
  weights.scales = reinterpret_cast<float*>(weights.codes + row_tiles * weights.codes_stride);
  weights.biases = weights.scales + row_tiles * 16 * weights.scalar_stride;
  return {{sums, sums + 3 * kTileFloats}, lanes, lanes + kTileFloats, weights};
}

template <int kWidth>
void store_pieces(__m512i low, __m512i high, uint8_t* out);

// Codes of a group: half 0 of its lanes, then half 1.
template <>
inline void store_pieces<64>(__m512i low, __m512i high, uint8_t* out) {
  _mm512_store_si512(out, low);
  _mm512_store_si512(out + kTile, high);
}
template <>
inline void store_pieces<32>(__m512i low, __m512i high, uint8_t* out) {
  auto* first = reinterpret_cast<__m256i*>(out);
  auto* second = reinterpret_cast<__m256i*>(out + kTile);
  _mm256_store_si256(first, _mm512_castsi512_si256(low));
  _mm256_store_si256(first + 1, _mm512_castsi512_si256(high));
  _mm256_store_si256(second, _mm512_extracti64x4_epi64(low, 1));
  _mm256_store_si256(second + 1, _mm512_extracti64x4_epi64(high, 1));
}
template <>
inline void store_pieces<16>(__m512i low, __m512i high, uint8_t* out) {
  alignas(64) __m128i parts[8];
  _mm512_store_si512(parts, low);
  _mm512_store_si512(parts + 4, high);
  for (int group = 0; group < 4; ++group) {
    auto* row = reinterpret_cast<__m128i*>(out + group * kTile);
    _mm_store_si128(row, parts[group]);
    _mm_store_si128(row + 1, parts[4 + group]);
  }
}

// kWidth: bytes of one half of a group's lanes.
template <CodeWidth width, int kWidth>
void unpack_row_tile(const AffineRows& weights, int64_t first, int64_t rows,
                     const PackedLayout& layout, CodePrefetcher& prefetcher, uint8_t* out) {
  const CodeDecoder decoder(weights.bits);
  const int64_t row_bytes = layout.cols * weights.bits / 8;
  const int64_t tiles = TileShape(layout).block_tiles();
  for (int64_t block = 0; block < layout.blocks; ++block) {
    const int64_t offset = block * decoder.block_bytes;
    const int64_t rest = row_bytes - offset;
    const int64_t bytes = rest < decoder.block_bytes ? rest : decoder.block_bytes;
    for (int64_t r = 0; r < 16; ++r) {
      const uint8_t* data =
          weights.codes + (first + (r < rows ? r : rows - 1)) * weights.codes_stride + offset;
      prefetcher.fetch_line();
      const CodeHalves codes = load_codes<width>(data, bytes, decoder);
      store_pieces<kWidth>(codes.low, codes.high, out + block * tiles * kTile + r * kTileRow);
    }
  }
}

template <CodeWidth width>
void unpack_row_tile(const AffineRows& weights, int64_t first, int64_t rows,
                     const PackedLayout& layout, CodePrefetcher& prefetcher, uint8_t* out) {
  if (layout.group_size == 32)
    return unpack_row_tile<width, 16>(weights, first, rows, layout, prefetcher, out);
  if (layout.group_size == 64)
    return unpack_row_tile<width, 32>(weights, first, rows, layout, prefetcher, out);
  return unpack_row_tile<width, 64>(weights, first, rows, layout, prefetcher, out);
}

void unpack_integer_rows(const AffineRows& weights, int64_t first, int64_t rows,
                         const PackedLayout& layout, const IntegerWeights& out) {
  CodePrefetcher prefetcher(weights, first, rows);
  fetch_scalars(weights.scales, weights.scales_stride, first, rows);
  fetch_scalars(weights.biases, weights.biases_stride, first, rows);
  for (int64_t row = 0; row < rows; row += 16) {
    const int64_t begin = first + row;
    const int64_t count = rows - row < 16 ? rows - row : 16;
    uint8_t* codes = out.codes + row / 16 * out.codes_stride;
    switch (code_width(weights.bits)) {
      case CodeWidth::kNibble:
        unpack_row_tile<CodeWidth::kNibble>(weights, begin, count, layout, prefetcher, codes);
        break;
      case CodeWidth::kNarrow:
        unpack_row_tile<CodeWidth::kNarrow>(weights, begin, count, layout, prefetcher, codes);
        break;
      case CodeWidth::kWide:
        unpack_row_tile<CodeWidth::kWide>(weights, begin, count, layout, prefetcher, codes);
        break;
      case CodeWidth::kE2M1:
        break;  // never comes here
    }
    widen_scalars(weights.scales + begin * weights.scales_stride, weights.scales_stride, count,
                  weights.scale_format, layout.groups, out.scales + row * out.scalar_stride);
    widen_scalars(weights.biases + begin * weights.biases_stride, weights.biases_stride, count,
                  weights.scale_format, layout.groups, out.biases + row * out.scalar_stride);
  }
}

// One group of one row tile and piece.
struct GroupStep {
  int64_t row_tile = 0;
  int64_t piece = 0;
  int64_t group = -1;
};

// Some row tiles against one or two pieces of x.
template <int kLimbs>
class IntegerPass {
 public:
  IntegerPass(Tiles& tiles, const PackedLayout& layout, const IntegerScratch& scratch,
              const std::byte* x)
      : tiles_(tiles), layout_(layout), shape_(layout), piece_(layout), scratch_(scratch), x_(x) {}

  void run(int64_t row_tiles, int64_t pieces) {
    const __m512 zero = _mm512_setzero_ps();
    for (int64_t i = 0; i < row_tiles * kPairPieces * 16; ++i) {
      _mm512_store_ps(scratch_.totals + i * 16, zero);
    }
    // Chain by chain, so that the tiles of a chain meet all others from the first-level cache.
    for (int64_t chain = 0; chain < 16 && chain < layout_.groups; ++chain) {
      for (int64_t row_tile = 0; row_tile < row_tiles; ++row_tile) {
        for (int64_t piece = 0; piece < pieces; ++piece) {
          for (int64_t group = chain; group < layout_.groups; group += 16) {
            advance({row_tile, piece, group});
          }
        }
      }
    }
    advance({});
    advance({});
  }

 private:
  // The unit multiplies the step before `next` while the vector units finish the one before that.
  // Loads for `next` stand before the stores of sums: a load waits for older stores to the same
  // place in a page.
  void advance(const GroupStep& next) {
    if (loaded_.group >= 0) multiply();
    if (next.group >= 0) load(next, 0);
    if (stored_.group >= 0) finish(stored_, scratch_.sums[1 - parity_]);
    if (loaded_.group >= 0) store(scratch_.sums[parity_]);
    stored_ = loaded_;
    loaded_ = next;
    parity_ = 1 - parity_;
  }

  void load(const GroupStep& step, int64_t part) {
    const int64_t tile = step.group * shape_.parts + part;
    tiles_.template load<3>(scratch_.weights.codes + step.row_tile * scratch_.weights.codes_stride +
                            tile * kTile);
    const std::byte* x = x_ + step.piece * piece_.bytes + tile * kLimbs * kTile;
    tiles_.template load<4>(x);
    if constexpr (kLimbs > 1) tiles_.template load<5>(x + kTile);
    if constexpr (kLimbs > 2) tiles_.template load<6>(x + 2 * kTile);
  }

  void multiply() {
    tiles_.template zero<0>();
    if constexpr (kLimbs > 1) tiles_.template zero<1>();
    if constexpr (kLimbs > 2) tiles_.template zero<2>();
    multiply_part();
    if (shape_.parts == 1) return;
    load(loaded_, 1);
    multiply_part();
  }

  void multiply_part() {
    tiles_.template multiply_bytes<0, 3, 4>();
    if constexpr (kLimbs > 1) tiles_.template multiply_bytes<1, 3, 5>();
    if constexpr (kLimbs > 2) tiles_.template multiply_bytes<2, 3, 6>();
  }

  void store(int32_t* sums) {
    tiles_.template store<0>(sums);
    if constexpr (kLimbs > 1) tiles_.template store<1>(sums + kTileFloats);
    if constexpr (kLimbs > 2) tiles_.template store<2>(sums + 2 * kTileFloats);
  }

  void finish(const GroupStep& step, const int32_t* sums) {
    const bool first = step.group < 16;
    const bool last = step.group + 16 >= layout_.groups;
    if (first && last) return add_to_chain<true, true>(step, sums);
    if (first) return add_to_chain<true, false>(step, sums);
    if (last) return add_to_chain<false, true>(step, sums);
    add_to_chain<false, false>(step, sums);
  }

  // Adds the sums of a step to its chain, and a chain that is complete to the totals.
  template <bool kFirst, bool kLast>
  void add_to_chain(const GroupStep& step, const int32_t* sums) {
    const std::byte* x = x_ + step.piece * piece_.bytes + step.group * kTileRow;
    const __m512 x_scales = _mm512_load_ps(x + piece_.scales);
    const __m512 x_sums = _mm512_load_ps(x + piece_.sums);
    const IntegerWeights& weights = scratch_.weights;
    const int64_t scalar = step.row_tile * 16 * weights.scalar_stride + step.group;
    float* totals = scratch_.totals + (step.row_tile * kPairPieces + step.piece) * kTileFloats;
    float* lanes = scratch_.lanes;
#pragma GCC unroll 4
    for (int64_t r = 0; r < 16; ++r) {
      __m512i values[kLimbs];
      for (int limb = 0; limb < kLimbs; ++limb) {
        values[limb] = _mm512_load_si512(sums + limb * kTileFloats + r * 16);
      }
      const __m512 scale = _mm512_set1_ps(weights.scales[scalar + r * weights.scalar_stride]);
      const __m512 bias = _mm512_set1_ps(weights.biases[scalar + r * weights.scalar_stride]);
      const __m512 before = kFirst ? _mm512_setzero_ps() : _mm512_load_ps(lanes + r * 16);
      __m512 lane = _mm512_fmadd_ps(integer_value(values), _mm512_mul_ps(scale, x_scales), before);
      lane = _mm512_fmadd_ps(bias, x_sums, lane);
      if constexpr (kLast) {
        lane = _mm512_add_ps(_mm512_load_ps(totals + r * 16), lane);
        _mm512_store_ps(totals + r * 16, lane);
      } else {
        _mm512_store_ps(lanes + r * 16, lane);
      }
    }
  }

  Tiles& tiles_;
  const PackedLayout& layout_;
  const TileShape shape_;
  const PieceLayout piece_;
  const IntegerScratch& scratch_;
  const std::byte* x_;
  GroupStep loaded_;  // its first tiles lie in the unit
  GroupStep stored_;  // its sums lie in memory
  int parity_ = 0;
};

template <int kLimbs>
void multiply_integer_tiles(const AffineRows& weights, const PackedLayout& layout,
                            const PackedTokens& tokens, std::byte* base) {
  const IntegerScratch scratch = integer_scratch(layout, base);
  const PieceLayout piece(layout);
  const int64_t pieces = (tokens.count + kTileTokens - 1) / kTileTokens;
  const int64_t block_rows = row_tiles_at_once(layout.cols) * 16;
  Tiles tiles;
  tiles.configure(3, 4, TileShape(layout).depth_bytes);
  for (int64_t first = 0; first < weights.rows; first += block_rows) {
    const int64_t rest = weights.rows - first;
    const int64_t rows = rest < block_rows ? rest : block_rows;
    unpack_integer_rows(weights, first, rows, layout, scratch.weights);
    for (int64_t begin = 0; begin < pieces; begin += kPairPieces) {
      const int64_t count = pieces - begin < kPairPieces ? pieces - begin : kPairPieces;
      IntegerPass<kLimbs> pass(tiles, layout, scratch, tokens.tiles + begin * piece.bytes);
      pass.run((rows + 15) / 16, count);
      for (int64_t row = 0; row < rows; row += 16) {
        for (int64_t i = 0; i < count; ++i) {
          store_outputs(scratch.totals + (row / 16 * kPairPieces + i) * kTileFloats, tokens,
                        (begin + i) * kTileTokens, first + row, rows - row);
        }
      }
    }
  }
  tiles.release();
}

void affine_rows_integer(const AffineRows& weights, const PackedLayout& layout,
                         const PackedTokens& tokens, std::byte* scratch) {
  if (tokens.count < kTilePathTokens) return affine_dot_avx512(weights, layout, tokens);
  if (layout.limbs == 1) return multiply_integer_tiles<1>(weights, layout, tokens, scratch);
  if (layout.limbs == 2) return multiply_integer_tiles<2>(weights, layout, tokens, scratch);
  multiply_integer_tiles<3>(weights, layout, tokens, scratch);
}

}  // namespace
}  // namespace motley
