// 4-bit weights as bfloat16 on a unit that multiplies tiles (linear_kernels.h). A group's 16 values
// s * q + b are computed once and looked up by code, so a group costs no float work beyond that and
// its sums never leave the unit. Rows of 64 bytes of codes become 4 steps of 32 columns.
#pragma once

#include "ops/cpu/affine_amx_inl.h"

namespace motley {
namespace {

constexpr int64_t kMaxPieces = 16;      // pieces of x that share unpacked weights
constexpr int64_t kNarrowRowTiles = 4;  // rows met by one piece
constexpr int64_t kWideRowTiles = 2;    // by more
constexpr int64_t kWideBlocks = 8;      // unpacked at a time: fewer cost more loads of sums

struct Bf16Scratch {
  std::byte* codes;  // tiles [row tile][step] of the blocks at hand
  float* sums;       // tiles [pair of pieces][piece][row tile], or [row tile]
  float* scales;     // [row][group]
  float* biases;
  int64_t scalar_stride;
};

constexpr int64_t kBf16CodeBytes = kWideRowTiles * kWideBlocks * kBlockSteps * kTile;
static_assert(2 * kNarrowRowTiles <= kWideRowTiles * kWideBlocks);
constexpr int64_t kBf16SumBytes = kMaxPieces * kWideRowTiles * kTile;

int64_t bf16_scratch_bytes(int64_t cols) {
  return kBf16CodeBytes + kBf16SumBytes +
         2 * kNarrowRowTiles * 16 * round_up_groups((cols + 63) / 64) * 4;
}

Bf16Scratch bf16_scratch(const PackedLayout& layout, std::byte* base) {
  const int64_t stride = round_up_groups(layout.groups);
  auto* sums = reinterpret_cast<float*>(base + kBf16CodeBytes);
  float* scales = sums + kBf16SumBytes / 4;
  return {base, sums, scales, scales + kNarrowRowTiles * 16 * stride, stride};
}

// Values of the codes of two groups that share a block (or of one group, twice).
inline __m512i value_table(const float* scales, const float* biases, int64_t second) {
  const __m512 codes = _mm512_setr_ps(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15);
  const __m512 low = _mm512_fmadd_ps(_mm512_set1_ps(scales[0]), codes, _mm512_set1_ps(biases[0]));
  const __m512 high =
      _mm512_fmadd_ps(_mm512_set1_ps(scales[second]), codes, _mm512_set1_ps(biases[second]));
  return reinterpret_cast<__m512i>(_mm512_cvtne2ps_pbh(high, low));
}

// Some blocks of 16 rows to tiles [step].
void unpack_bf16(const AffineRows& weights, int64_t first, int64_t rows, const PackedLayout& layout,
                 const float* scales, const float* biases, int64_t begin, int64_t end,
                 CodePrefetcher& prefetcher, std::byte* out) {
  const int64_t stride = round_up_groups(layout.groups);
  const int64_t block_groups = kPackedBlock / layout.group_size;
  const __m512i mask = _mm512_set1_epi16(15);
  // The upper half of a vector of codes belongs to the upper half of the table.
  const __m512i half = block_groups == 2
                           ? _mm512_inserti64x4(_mm512_setzero_si512(), _mm256_set1_epi16(16), 1)
                           : _mm512_setzero_si512();
  const int64_t row_bytes = layout.cols / 2;
  for (int64_t block = begin; block < end; ++block) {
    const int64_t rest = row_bytes - block * 64;
    const __mmask64 exists = byte_mask(rest);
    std::byte* tiles = out + (block - begin) * kBlockSteps * kTile;
    for (int64_t r = 0; r < 16; ++r) {
      const uint8_t* data =
          weights.codes + (first + (r < rows ? r : rows - 1)) * weights.codes_stride + block * 64;
      prefetcher.fetch_line();
      const int64_t scalar = r * stride + block * block_groups;
      const __m512i table = value_table(scales + scalar, biases + scalar, block_groups - 1);
      const __m512i codes = _mm512_maskz_loadu_epi8(exists, data);
      const auto look_up = [&](int64_t step, __m512i shifted) {
        const __m512i index = _mm512_ternarylogic_epi64(shifted, mask, half, 0xEA);
        _mm512_store_si512(tiles + step * kTile + r * kTileRow,
                           _mm512_permutexvar_epi16(index, table));
      };
      look_up(0, codes);
      look_up(1, _mm512_srli_epi16(codes, 4));
      look_up(2, _mm512_srli_epi16(codes, 8));
      look_up(3, _mm512_srli_epi16(codes, 12));
    }
  }
}

// Rows [first, first + rows) against some pieces of x.
class Bf16Pass {
 public:
  Bf16Pass(Tiles& tiles, const AffineRows& weights, const PackedLayout& layout,
           const Bf16Scratch& scratch, int64_t first, int64_t rows)
      : tiles_(tiles),
        weights_(weights),
        layout_(layout),
        scratch_(scratch),
        first_(first),
        rows_(rows),
        piece_bytes_(PieceLayout(layout).bytes),
        prefetcher_(weights, first, rows) {
    fetch_scalars(weights.scales, weights.scales_stride, first, rows);
    fetch_scalars(weights.biases, weights.biases_stride, first, rows);
    for (int64_t row = 0; row < rows; row += 16) {
      const int64_t begin = first + row;
      const int64_t count = rows - row < 16 ? rows - row : 16;
      widen_scalars(weights.scales + begin * weights.scales_stride, weights.scales_stride, count,
                    weights.scale_format, layout.groups,
                    scratch.scales + row * scratch.scalar_stride);
      widen_scalars(weights.biases + begin * weights.biases_stride, weights.biases_stride, count,
                    weights.scale_format, layout.groups,
                    scratch.biases + row * scratch.scalar_stride);
    }
  }

  // One piece, 4 row tiles: the sums stay in the unit. While it multiplies one block, the vector
  // units unpack the next, row tile by row tile, so that both find work within reach.
  void run_narrow(const std::byte* x) {
    clear();
    for (int64_t tile = 0; tile < kNarrowRowTiles; ++tile) unpack_narrow(tile, 0);
    for (int64_t block = 0; block < layout_.blocks; ++block) {
      narrow_step<0>(x, block);
      narrow_step<1>(x, block);
      narrow_step<2>(x, block);
      narrow_step<3>(x, block);
    }
    store(scratch_.sums);
  }

  // Two row tiles against pairs of pieces; with more than one pair the sums wait in memory.
  void run_wide(const std::byte* x, int64_t pieces) {
    if (pieces <= 2) clear();
    for (int64_t block = 0; block < layout_.blocks; block += kWideBlocks) {
      const int64_t end =
          block + kWideBlocks < layout_.blocks ? block + kWideBlocks : layout_.blocks;
      for (int64_t tile = 0; tile < kWideRowTiles; ++tile) {
        unpack(tile, block, end, scratch_.codes + tile * kWideBlocks * kBlockSteps * kTile);
      }
      for (int64_t piece = 0; piece < pieces; piece += 2) {
        float* sums = scratch_.sums + piece * kWideRowTiles * kTileFloats;
        if (pieces > 2) block == 0 ? clear() : load(sums);
        const std::byte* tiles = x + piece * piece_bytes_ + block * kBlockSteps * kTile;
        multiply_pair(tiles, piece + 1 < pieces, (end - block) * kBlockSteps);
        if (pieces > 2) store(sums);
      }
    }
    if (pieces <= 2) store(scratch_.sums);
  }

 private:
  // Blocks of one row tile.
  void unpack(int64_t tile, int64_t begin, int64_t end, std::byte* out) {
    if (tile * 16 >= rows_) return;
    const int64_t scalar = tile * 16 * scratch_.scalar_stride;
    const int64_t rest = rows_ - tile * 16;
    unpack_bf16(weights_, first_ + tile * 16, rest < 16 ? rest : 16, layout_,
                scratch_.scales + scalar, scratch_.biases + scalar, begin, end, prefetcher_, out);
  }

  // Of the codes of a block two places, [parity of block][row tile][step].
  std::byte* narrow_codes(int64_t tile, int64_t block) const {
    return scratch_.codes + (block % 2 * kNarrowRowTiles + tile) * kBlockSteps * kTile;
  }
  void unpack_narrow(int64_t tile, int64_t block) {
    unpack(tile, block, block + 1, narrow_codes(tile, block));
  }

  template <int kRowTile>
  void narrow_step(const std::byte* x, int64_t block) {
    if (block + 1 < layout_.blocks) unpack_narrow(kRowTile, block + 1);
    const std::byte* w = narrow_codes(kRowTile, block);
    const std::byte* columns = x + block * kBlockSteps * kTile;
    tiles_.template load<4>(w);
    tiles_.template load<6>(columns);
    tiles_.template multiply_bf16<kRowTile, 4, 6>();
    tiles_.template load<5>(w + kTile);
    tiles_.template load<7>(columns + kTile);
    tiles_.template multiply_bf16<kRowTile, 5, 7>();
    tiles_.template load<4>(w + 2 * kTile);
    tiles_.template load<6>(columns + 2 * kTile);
    tiles_.template multiply_bf16<kRowTile, 4, 6>();
    tiles_.template load<5>(w + 3 * kTile);
    tiles_.template load<7>(columns + 3 * kTile);
    tiles_.template multiply_bf16<kRowTile, 5, 7>();
  }

  // Tiles 0 and 1: the first piece by both row tiles; 2 and 3: the second.
  void multiply_pair(const std::byte* x, bool is_pair, int64_t steps) {
    constexpr int64_t kStride = kWideBlocks * kBlockSteps * kTile;
    for (int64_t step = 0; step < steps; ++step) {
      const std::byte* w = scratch_.codes + step * kTile;
      tiles_.load<4>(w);
      tiles_.load<6>(x + step * kTile);
      tiles_.multiply_bf16<0, 4, 6>();
      tiles_.load<5>(w + kStride);
      tiles_.multiply_bf16<1, 5, 6>();
      if (!is_pair) continue;
      tiles_.load<7>(x + piece_bytes_ + step * kTile);
      tiles_.multiply_bf16<2, 4, 7>();
      tiles_.multiply_bf16<3, 5, 7>();
    }
  }

  void clear() {
    tiles_.zero<0>();
    tiles_.zero<1>();
    tiles_.zero<2>();
    tiles_.zero<3>();
  }
  void load(const float* sums) {
    tiles_.load<0>(sums);
    tiles_.load<1>(sums + kTileFloats);
    tiles_.load<2>(sums + 2 * kTileFloats);
    tiles_.load<3>(sums + 3 * kTileFloats);
  }
  void store(float* sums) {
    tiles_.store<0>(sums);
    tiles_.store<1>(sums + kTileFloats);
    tiles_.store<2>(sums + 2 * kTileFloats);
    tiles_.store<3>(sums + 3 * kTileFloats);
  }

  Tiles& tiles_;
  const AffineRows& weights_;
  const PackedLayout& layout_;
  const Bf16Scratch& scratch_;
  int64_t first_;
  int64_t rows_;
  int64_t piece_bytes_;
  CodePrefetcher prefetcher_;
};

void affine_rows_bf16(const AffineRows& weights, const PackedLayout& layout,
                      const PackedTokens& tokens, std::byte* base) {
  const Bf16Scratch scratch = bf16_scratch(layout, base);
  const int64_t piece_bytes = PieceLayout(layout).bytes;
  const int64_t pieces = (tokens.count + kTileTokens - 1) / kTileTokens;
  Tiles tiles;
  tiles.configure(4, 6, kTileRow);
  for (int64_t begin = 0; begin < pieces; begin += kMaxPieces) {
    const int64_t count = pieces - begin < kMaxPieces ? pieces - begin : kMaxPieces;
    const int64_t row_tiles = count == 1 ? kNarrowRowTiles : kWideRowTiles;
    const std::byte* x = tokens.tiles + begin * piece_bytes;
    for (int64_t first = 0; first < weights.rows; first += row_tiles * 16) {
      const int64_t rest = weights.rows - first;
      const int64_t rows = rest < row_tiles * 16 ? rest : row_tiles * 16;
      Bf16Pass pass(tiles, weights, layout, scratch, first, rows);
      if (count == 1) {
        pass.run_narrow(x);
      } else {
        pass.run_wide(x, count);
      }
      for (int64_t piece = 0; piece < count; ++piece) {
        for (int64_t row = 0; row < rows; row += 16) {
          store_outputs(scratch.sums + (piece * row_tiles + row / 16) * kTileFloats, tokens,
                        (begin + piece) * kTileTokens, first + row, rows - row);
        }
      }
    }
  }
  tiles.release();
}

// Even elements of the first 8, odd elements of ... : 64 floats to 4 vectors of 16 whose elements
// lie 4 apart.
inline void pack_bf16_elements(const float* x, std::byte* out) {
  const __m512i first = _mm512_setr_epi32(0, 4, 8, 12, 16, 20, 24, 28, 1, 5, 9, 13, 17, 21, 25, 29);
  const __m512i second = _mm512_add_epi32(first, _mm512_set1_epi32(2));
  const __m512 a = _mm512_loadu_ps(x);
  const __m512 b = _mm512_loadu_ps(x + 16);
  const __m512 c = _mm512_loadu_ps(x + 32);
  const __m512 d = _mm512_loadu_ps(x + 48);
  const __m512 low01 = _mm512_permutex2var_ps(a, first, b);
  const __m512 high01 = _mm512_permutex2var_ps(c, first, d);
  const __m512 low23 = _mm512_permutex2var_ps(a, second, b);
  const __m512 high23 = _mm512_permutex2var_ps(c, second, d);
  const auto store = [out](int64_t step, __m512 values) {
    _mm256_store_si256(reinterpret_cast<__m256i*>(out + step * kTileRow),
                       reinterpret_cast<__m256i>(_mm512_cvtneps_pbh(values)));
  };
  store(0, _mm512_shuffle_f32x4(low01, high01, 0x44));
  store(1, _mm512_shuffle_f32x4(low01, high01, 0xEE));
  store(2, _mm512_shuffle_f32x4(low23, high23, 0x44));
  store(3, _mm512_shuffle_f32x4(low23, high23, 0xEE));
}

void pack_bf16_groups(const PackedLayout& layout, const float* x, int64_t first, int64_t count,
                      std::byte* row) {
  constexpr int64_t kStepBytes = kBlockSteps * kTileRow;
  const int64_t begin = first * layout.group_size;
  for (int64_t i = 0; i < count * layout.group_size; i += 64) {
    const int64_t element = begin + i;
    pack_bf16_elements(
        x + i, row + element / kPackedBlock * kStepBytes + element % kPackedBlock / 64 * 32);
  }
}

void pack_groups_tiled(const PackedLayout& layout, const float* x, int64_t first, int64_t count,
                       std::byte* row) {
  if (layout.bf16) return pack_bf16_groups(layout, x, first, count, row);
  linear_kernels_avx512().pack_groups(layout, x, first, count, row);
}

void affine_rows_tiled(const AffineRows& weights, const PackedLayout& layout,
                       const PackedTokens& tokens, std::byte* scratch) {
  if (layout.e2m1) return linear_kernels_avx512().affine_rows(weights, layout, tokens, scratch);
  if (layout.bf16) return affine_rows_bf16(weights, layout, tokens, scratch);
  affine_rows_integer(weights, layout, tokens, scratch);
}

int64_t scratch_bytes_tiled(int64_t cols) {
  const int64_t integer = integer_scratch_bytes(cols);
  const int64_t bf16 = bf16_scratch_bytes(cols);
  const int64_t tiled = integer > bf16 ? integer : bf16;
  const int64_t untiled = linear_kernels_avx512().scratch_bytes(cols);
  return tiled > untiled ? tiled : untiled;
}

LinearKernels tiled_kernels() {
  LinearKernels kernels = linear_kernels_avx512();
  kernels.pack_groups = pack_groups_tiled;
  kernels.affine_rows = affine_rows_tiled;
  kernels.scratch_bytes = scratch_bytes_tiled;
  kernels.tile_bytes = tile_bytes;
  kernels.build_tiles = build_tiles;
  kernels.bfloat16_tiles = true;
  return kernels;
}

}  // namespace
}  // namespace motley
