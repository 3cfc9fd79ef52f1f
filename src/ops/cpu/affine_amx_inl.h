// Many tokens on a unit that multiplies tiles: up to 16 tokens by 64 bytes of one limb (signed)
// times 64 codes by 16 output rows (unsigned). The sums of a group leave the unit as exact
// integers and join the same float chains as everywhere, so the bits are those of the other sets.
//
// The including file defines `Tiles` in its unnamed namespace before:
//   void configure(int tokens, int bytes);  // rows and bytes of a tile of x
//   void release();
//   void load_codes(const uint8_t*); void load_x(const std::byte*);  // rows 64 bytes apart
//   void clear(int limb); void multiply(int limb); void store(int limb, int32_t*);
#pragma once

#include "ops/cpu/affine_tile_avx512.h"

namespace motley {
namespace {

constexpr int64_t kTileTokens = 16;
constexpr int64_t kTileOfX = kTileTokens * 64;

// Scratch behind the panels: x in tile order, the sums of two groups, the chains and totals.
struct TileMemory {
  std::byte* x;      // [group][part of 64 bytes][limb] tiles
  int32_t* sums[2];  // [limb][token][row]
  float* lanes;      // [token][row]
  float* totals;     // [token][row]
};

constexpr int64_t kSumBytes = 3 * kTileTokens * 64;
constexpr int64_t kChainBytes = 2 * kSumBytes + 2 * kTileTokens * 64;

TileMemory tile_memory(std::byte* base) {
  return {base + kChainBytes,
          {reinterpret_cast<int32_t*>(base), reinterpret_cast<int32_t*>(base + kSumBytes)},
          reinterpret_cast<float*>(base + 2 * kSumBytes),
          reinterpret_cast<float*>(base + 2 * kSumBytes + kTileTokens * 64)};
}

// How a group of columns is cut for the unit.
struct TileShape {
  explicit TileShape(const PackedLayout& layout)
      : parts(layout.group_size == 128 ? 2 : 1), bytes(layout.group_size == 32 ? 32 : 64) {}
  int64_t parts;  // tiles of a group and limb
  int bytes;      // columns of one
};

// Puts the two halves of each lane side by side: the order of the rows of a code tile.
void interleave_token(const std::byte* token, const PackedLayout& layout, const TileShape& shape,
                      int64_t index, std::byte* out) {
  const __m512i first = _mm512_setr_epi32(0, 16, 1, 17, 2, 18, 3, 19, 4, 20, 5, 21, 6, 22, 7, 23);
  const __m512i second =
      _mm512_setr_epi32(8, 24, 9, 25, 10, 26, 11, 27, 12, 28, 13, 29, 14, 30, 15, 31);
  const int64_t pieces = kPackedBlock / shape.bytes;  // of a block: 2 or 4
  const int64_t tiles = layout.groups * shape.parts;
  for (int64_t block = 0; block < layout.blocks; ++block) {
    for (int64_t limb = 0; limb < layout.limbs; ++limb) {
      const std::byte* data = token + (block * layout.limbs + limb) * kPackedBlock;
      const __m512i low = _mm512_load_si512(data);
      const __m512i high = _mm512_load_si512(data + 64);
      alignas(64) std::byte bytes[kPackedBlock];
      _mm512_store_si512(bytes, _mm512_permutex2var_epi32(low, first, high));
      _mm512_store_si512(bytes + 64, _mm512_permutex2var_epi32(low, second, high));
      for (int64_t piece = 0; piece < pieces; ++piece) {
        const int64_t tile = block * pieces + piece;
        if (tile >= tiles) break;
        std::byte* row = out + (tile * layout.limbs + limb) * kTileOfX + index * 64;
        const __m256i lower =
            _mm256_load_si256(reinterpret_cast<const __m256i*>(bytes + piece * shape.bytes));
        _mm256_store_si256(reinterpret_cast<__m256i*>(row), lower);
        if (shape.bytes == 32) continue;
        const __m256i upper =
            _mm256_load_si256(reinterpret_cast<const __m256i*>(bytes + piece * 64 + 32));
        _mm256_store_si256(reinterpret_cast<__m256i*>(row + 32), upper);
      }
    }
  }
}

// Sums of one group for all limbs: [limb][token][16 rows].
template <int kLimbs>
void multiply_group(Tiles& tiles, const Panel& panel, const TileShape& shape, int64_t group,
                    const std::byte* x, int32_t* sums) {
#pragma GCC unroll 3
  for (int limb = 0; limb < kLimbs; ++limb) tiles.clear(limb);
  for (int64_t part = 0; part < shape.parts; ++part) {
    const int64_t tile = group * shape.parts + part;
    // A vector holds 4 columns of 16 rows.
    tiles.load_codes(panel.codes + tile * shape.bytes / 4 * 64);
#pragma GCC unroll 3
    for (int limb = 0; limb < kLimbs; ++limb) {
      tiles.load_x(x + (tile * kLimbs + limb) * kTileOfX);
      tiles.multiply(limb);
    }
  }
#pragma GCC unroll 3
  for (int limb = 0; limb < kLimbs; ++limb) tiles.store(limb, sums + limb * kTileTokens * 16);
}

template <int kLimbs>
void add_to_chain(const Panel& panel, const PackedLayout& layout, const std::byte* const* x,
                  int64_t count, int64_t group, bool first, const int32_t* sums, float* lanes) {
  const __m512 scales = _mm512_load_ps(panel.scales + group * 16);
  const __m512 biases = _mm512_load_ps(panel.biases + group * 16);
  for (int64_t t = 0; t < count; ++t) {
    __m512i values[kLimbs];
    for (int limb = 0; limb < kLimbs; ++limb) {
      values[limb] = _mm512_load_si512(sums + (limb * kTileTokens + t) * 16);
    }
    const auto* x_scales = reinterpret_cast<const float*>(x[t] + layout.scales_offset);
    const auto* x_sums = reinterpret_cast<const float*>(x[t] + layout.sums_offset);
    const __m512 before = first ? _mm512_setzero_ps() : _mm512_load_ps(lanes + t * 16);
    const __m512 scale = _mm512_mul_ps(scales, _mm512_set1_ps(x_scales[group]));
    const __m512 lane = _mm512_fmadd_ps(integer_value(values), scale, before);
    _mm512_store_ps(lanes + t * 16, _mm512_fmadd_ps(biases, _mm512_set1_ps(x_sums[group]), lane));
  }
}

void add_chain_to_totals(int64_t count, bool first, const float* lanes, float* totals) {
  for (int64_t t = 0; t < count; ++t) {
    const __m512 before = first ? _mm512_setzero_ps() : _mm512_load_ps(totals + t * 16);
    _mm512_store_ps(totals + t * 16, _mm512_add_ps(before, _mm512_load_ps(lanes + t * 16)));
  }
}

// Up to 16 tokens times the 16 rows of a panel. The unit works on the next group while the vector
// units finish the one before.
template <int kLimbs>
void tile_product(Tiles& tiles, const Panel& panel, const PackedLayout& layout,
                  const TileMemory& memory, const PackedTokens& tokens, __mmask16 rows) {
  const TileShape shape(layout);
  const int64_t chains = layout.groups < 16 ? layout.groups : 16;
  int parity = 0;
  multiply_group<kLimbs>(tiles, panel, shape, 0, memory.x, memory.sums[0]);
  for (int64_t chain = 0; chain < chains; ++chain) {
    for (int64_t group = chain; group < layout.groups; group += 16) {
      const int64_t next = group + 16 < layout.groups ? group + 16 : chain + 1;
      const bool last = group + 16 >= layout.groups && chain + 1 == chains;
      if (!last) {
        multiply_group<kLimbs>(tiles, panel, shape, next, memory.x, memory.sums[1 - parity]);
      }
      add_to_chain<kLimbs>(panel, layout, tokens.x, tokens.count, group, group == chain,
                           memory.sums[parity], memory.lanes);
      parity = 1 - parity;
    }
    add_chain_to_totals(tokens.count, chain == 0, memory.lanes, memory.totals);
  }
  for (int64_t t = 0; t < tokens.count; ++t) {
    _mm512_mask_storeu_ps(tokens.y[t] + tokens.y_offset, rows,
                          _mm512_load_ps(memory.totals + t * 16));
  }
}

void multiply_panel(Tiles& tiles, const Panel& panel, const PackedLayout& layout,
                    const TileMemory& memory, const PackedTokens& tokens, __mmask16 rows) {
  if (layout.limbs == 1) return tile_product<1>(tiles, panel, layout, memory, tokens, rows);
  if (layout.limbs == 2) return tile_product<2>(tiles, panel, layout, memory, tokens, rows);
  tile_product<3>(tiles, panel, layout, memory, tokens, rows);
}

int64_t panels_bytes(int64_t cols) {
  const int64_t blocks = (cols + kPackedBlock - 1) / kPackedBlock;
  return panels_at_once(cols) * panel_bytes(blocks, (cols + 31) / 32);
}

// Pieces of up to 16 tokens times the first `rows` rows of the panels in scratch.
void multiply_tokens(const PackedLayout& layout, const PackedTokens& tokens, int64_t rows,
                     std::byte* scratch) {
  const TileMemory memory = tile_memory(scratch + panels_bytes(layout.cols));
  const TileShape shape(layout);
  Tiles tiles;
  const int64_t pieces = (tokens.count + kTileTokens - 1) / kTileTokens;
  for (int64_t piece = 0; piece < pieces; ++piece) {
    const int64_t begin = tokens.count * piece / pieces;
    const int64_t count = tokens.count * (piece + 1) / pieces - begin;
    for (int64_t t = 0; t < count; ++t) {
      interleave_token(tokens.x[begin + t], layout, shape, t, memory.x);
    }
    tiles.configure(static_cast<int>(count), shape.bytes);
    for (int64_t row = 0; row < rows; row += kPanelRows) {
      multiply_panel(tiles, panel_at(scratch, layout, row / kPanelRows), layout, memory,
                     {tokens.x + begin, tokens.y + begin, tokens.y_offset + row, count},
                     row_mask(rows - row));
    }
  }
  tiles.release();
}

// From this many tokens on, tiles pay.
constexpr int64_t kTilePathTokens = 4;

void affine_rows_tiled(const AffineRows& weights, const PackedLayout& layout,
                       const PackedTokens& tokens, std::byte* scratch) {
  if (tokens.count < kTilePathTokens) return affine_dot_avx512(weights, layout, tokens);
  const int64_t panel_rows = panels_at_once(layout.cols) * kPanelRows;
  for (int64_t first = 0; first < weights.rows; first += panel_rows) {
    const int64_t rest = weights.rows - first;
    const int64_t rows = rest < panel_rows ? rest : panel_rows;
    for (int64_t row = 0; row < rows; row += kPanelRows) {
      unpack_panel<TileOrder::kLanes>(weights, first + row,
                                      rows - row < kPanelRows ? rows - row : kPanelRows, layout,
                                      panel_at(scratch, layout, row / kPanelRows));
    }
    multiply_tokens(layout, {tokens.x, tokens.y, tokens.y_offset + first, tokens.count}, rows,
                    scratch);
  }
}

// x in tile order is largest with groups of 32: a tile for each group and limb.
int64_t scratch_bytes_tiled(int64_t cols) {
  return panels_bytes(cols) + kChainBytes + (cols + 31) / 32 * 3 * kTileOfX;
}

}  // namespace
}  // namespace motley
