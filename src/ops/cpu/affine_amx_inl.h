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

constexpr int64_t kMaxPieces = 4;  // pieces of 16 tokens that share a pass over the panels

// Scratch behind the panels. Of sums two, so that the unit fills one while the other is read.
struct TileMemory {
  int32_t* sums[2];  // [limb][token][row] of one group
  float* lanes;      // [token][row] of one chain
  float* totals;     // [panel][piece][token][row]
  std::byte* x;      // [piece][group][part of 64 bytes][limb] tiles
};

constexpr int64_t kRowsBytes = kTileTokens * 64;  // [token][row]
constexpr int64_t kSumBytes = 3 * kRowsBytes;
constexpr int64_t kFixedBytes = 2 * kSumBytes + kRowsBytes + kMaxPanels * kMaxPieces * kRowsBytes;

TileMemory tile_memory(std::byte* base) {
  auto* lanes = reinterpret_cast<float*>(base + 2 * kSumBytes);
  return {{reinterpret_cast<int32_t*>(base), reinterpret_cast<int32_t*>(base + kSumBytes)},
          lanes,
          lanes + kTileTokens * 16,
          base + kFixedBytes};
}

// Their rows in tile order should stay in the second-level cache.
int64_t pieces_at_once(int64_t cols) {
  const int64_t fit = 16384 / cols;
  return fit < 1 ? 1 : fit > kMaxPieces ? kMaxPieces : fit;
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

// Tokens of one pass in pieces of nearly the same size, and the panels they meet.
struct TilePass {
  const PackedLayout& layout;
  const PackedTokens& tokens;
  std::byte* panels;
  int64_t rows;
  int64_t pieces;
  TileShape shape;
  TileMemory memory;

  int64_t piece_begin(int64_t piece) const { return tokens.count * piece / pieces; }
  int64_t piece_count(int64_t piece) const { return piece_begin(piece + 1) - piece_begin(piece); }
  std::byte* piece_x(int64_t piece) const {
    return memory.x + piece * layout.groups * shape.parts * layout.limbs * kTileOfX;
  }
  float* totals(int64_t panel, int64_t piece) const {
    return memory.totals + (panel * kMaxPieces + piece) * kTileTokens * 16;
  }
};

// One group of one piece and panel.
struct GroupStep {
  int64_t panel = 0;
  int64_t piece = 0;
  int64_t group = -1;
};

// Adds the sums of a step to its chain, and a chain that is complete to the totals.
template <int kLimbs>
void finish_step(const TilePass& pass, const GroupStep& step, const int32_t* sums) {
  const int64_t count = pass.piece_count(step.piece);
  float* lanes = pass.memory.lanes;
  add_to_chain<kLimbs>(panel_at(pass.panels, pass.layout, step.panel), pass.layout,
                       pass.tokens.x + pass.piece_begin(step.piece), count, step.group,
                       step.group < 16, sums, lanes);
  if (step.group + 16 < pass.layout.groups) return;
  float* totals = pass.totals(step.panel, step.piece);
  const bool first = step.group % 16 == 0;
  for (int64_t t = 0; t < count; ++t) {
    const __m512 before = first ? _mm512_setzero_ps() : _mm512_load_ps(totals + t * 16);
    _mm512_store_ps(totals + t * 16, _mm512_add_ps(before, _mm512_load_ps(lanes + t * 16)));
  }
}

// Chain by chain, so that the tiles of a chain meet every piece and panel from the first-level
// cache. The unit works on a step while the vector units finish the one before.
template <int kLimbs>
void run_pass(Tiles& tiles, const TilePass& pass) {
  GroupStep pending;
  int parity = 0;
  const int64_t panels = (pass.rows + kPanelRows - 1) / kPanelRows;
  for (int64_t chain = 0; chain < 16 && chain < pass.layout.groups; ++chain) {
    for (int64_t panel = 0; panel < panels; ++panel) {
      for (int64_t piece = 0; piece < pass.pieces; ++piece) {
        for (int64_t group = chain; group < pass.layout.groups; group += 16) {
          multiply_group<kLimbs>(tiles, panel_at(pass.panels, pass.layout, panel), pass.shape,
                                 group, pass.piece_x(piece), pass.memory.sums[parity]);
          if (pending.group >= 0) {
            finish_step<kLimbs>(pass, pending, pass.memory.sums[1 - parity]);
          }
          pending = {panel, piece, group};
          parity = 1 - parity;
        }
      }
    }
  }
  finish_step<kLimbs>(pass, pending, pass.memory.sums[1 - parity]);
}

void store_totals(const TilePass& pass) {
  for (int64_t row = 0; row < pass.rows; row += kPanelRows) {
    for (int64_t piece = 0; piece < pass.pieces; ++piece) {
      const float* totals = pass.totals(row / kPanelRows, piece);
      const int64_t begin = pass.piece_begin(piece);
      for (int64_t t = 0; t < pass.piece_count(piece); ++t) {
        _mm512_mask_storeu_ps(pass.tokens.y[begin + t] + pass.tokens.y_offset + row,
                              row_mask(pass.rows - row), _mm512_load_ps(totals + t * 16));
      }
    }
  }
}

int64_t panels_bytes(int64_t cols) {
  const int64_t blocks = (cols + kPackedBlock - 1) / kPackedBlock;
  return panels_at_once(cols) * panel_bytes(blocks, (cols + 31) / 32);
}

// All tokens times the first `rows` rows of the panels in scratch.
void multiply_tokens(const PackedLayout& layout, const PackedTokens& tokens, int64_t rows,
                     std::byte* scratch) {
  const TileMemory memory = tile_memory(scratch + panels_bytes(layout.cols));
  const int64_t most = pieces_at_once(layout.cols) * kTileTokens;
  Tiles tiles;
  for (int64_t begin = 0; begin < tokens.count; begin += most) {
    const int64_t rest = tokens.count - begin;
    const PackedTokens part = {tokens.x + begin, tokens.y + begin, tokens.y_offset,
                               rest < most ? rest : most};
    const int64_t pieces = (part.count + kTileTokens - 1) / kTileTokens;
    const TilePass pass{layout, part, scratch, rows, pieces, TileShape(layout), memory};
    for (int64_t piece = 0; piece < pieces; ++piece) {
      for (int64_t t = 0; t < pass.piece_count(piece); ++t) {
        interleave_token(part.x[pass.piece_begin(piece) + t], layout, pass.shape, t,
                         pass.piece_x(piece));
      }
    }
    // Rows of the largest piece; a smaller one's last row is computed from what lies there.
    tiles.configure(static_cast<int>((part.count + pieces - 1) / pieces), pass.shape.bytes);
    if (layout.limbs == 1) run_pass<1>(tiles, pass);
    if (layout.limbs == 2) run_pass<2>(tiles, pass);
    if (layout.limbs == 3) run_pass<3>(tiles, pass);
    store_totals(pass);
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
  return panels_bytes(cols) + kFixedBytes +
         pieces_at_once(cols) * ((cols + 31) / 32) * 3 * kTileOfX;
}

}  // namespace
}  // namespace motley
