// How x and the weights lie in memory for a unit that multiplies tiles, and the tiles of x.
// Weights are the rows of a product of tiles, 16 by 64 bytes of codes; x the columns, 16 tokens by
// 64 bytes in rows of 4 bytes a token. So codes keep the order they have in the checkpoint, and
// only x, which many weights share, is transposed.
#pragma once

#include "ops/cpu/affine_tile_avx512.h"

namespace motley {
namespace {

constexpr int64_t kTile = 1024;  // bytes
constexpr int64_t kTileRow = 64;

// How a group of columns is cut for integer products.
struct TileShape {
  explicit TileShape(const PackedLayout& layout)
      : group_lanes(layout.group_size / 8),
        block_groups(kPackedBlock / layout.group_size),
        parts(layout.group_size == 128 ? 2 : 1),
        depth_bytes(layout.group_size == 32 ? 32 : 64) {}
  int64_t group_lanes;   // lanes of a block (PackedLayout) that belong to a group
  int64_t block_groups;  // groups of a block
  int64_t parts;         // tiles of a group and limb
  int depth_bytes;       // columns of a tile
  int64_t block_tiles() const { return block_groups * parts; }
};

constexpr int64_t kBlockSteps = 4;  // steps of a block of bfloat16 columns

// One piece of tiles of x. Integers: tiles [group][part][limb], then scales and sums
// [group][token]. bfloat16: tiles [step].
struct PieceLayout {
  explicit PieceLayout(const PackedLayout& layout) {
    if (layout.bf16) {
      bytes = layout.blocks * kBlockSteps * kTile;
      return;
    }
    scales = layout.groups * TileShape(layout).parts * layout.limbs * kTile;
    sums = scales + round_up_groups(layout.groups) * kTileRow;
    bytes = sums + round_up_groups(layout.groups) * kTileRow;
  }
  int64_t scales = 0;  // offsets
  int64_t sums = 0;
  int64_t bytes = 0;
};

// 64 bytes at an offset of up to 16 rows, transposed: out[i] holds bytes 4 i .. 4 i + 3 of each.
inline void load_columns(const std::byte* const* x, int64_t count, int64_t offset,
                         __m512i (&out)[16]) {
  for (int64_t t = 0; t < 16; ++t) {
    out[t] = t < count ? _mm512_loadu_si512(x[t] + offset) : _mm512_setzero_si512();
  }
  transpose16(out);
}

void build_integer_piece(const PackedLayout& layout, const std::byte* const* x, int64_t count,
                         std::byte* out) {
  const TileShape shape(layout);
  const PieceLayout piece(layout);
  __m512i columns[16];
  for (int64_t block = 0; block < layout.blocks; ++block) {
    for (int64_t part = 0; part < 2 * layout.limbs; ++part) {  // a limb's half
      const int64_t limb = part / 2;
      load_columns(x, count, block * kPackedBlock * layout.limbs + part * 64, columns);
      for (int64_t lane = 0; lane < 16; ++lane) {
        const int64_t group = block * shape.block_groups + lane / shape.group_lanes;
        if (group >= layout.groups) break;
        // Half 0 of a group's lanes, then half 1, as unpack_row lays out codes.
        const int64_t row = part % 2 * shape.group_lanes + lane % shape.group_lanes;
        const int64_t tile = (group * shape.parts + row / 16) * layout.limbs + limb;
        _mm512_store_si512(out + tile * kTile + row % 16 * kTileRow, columns[lane]);
      }
    }
  }
  for (int64_t group = 0; group < layout.groups; group += 16) {
    load_columns(x, count, layout.scales_offset + group * 4, columns);
    store_lanes(columns, kTileRow,
                reinterpret_cast<uint8_t*>(out + piece.scales + group * kTileRow));
    load_columns(x, count, layout.sums_offset + group * 4, columns);
    store_lanes(columns, kTileRow, reinterpret_cast<uint8_t*>(out + piece.sums + group * kTileRow));
  }
}

void build_bf16_piece(const PackedLayout& layout, const std::byte* const* x, int64_t count,
                      std::byte* out) {
  __m512i columns[16];
  for (int64_t step = 0; step < layout.blocks * kBlockSteps; ++step) {
    load_columns(x, count, step * kTileRow, columns);
    store_lanes(columns, kTileRow, reinterpret_cast<uint8_t*>(out + step * kTile));
  }
}

void build_tiles(const PackedLayout& layout, const std::byte* const* x, int64_t count,
                 std::byte* tiles) {
  const PieceLayout piece(layout);
  for (int64_t first = 0; first < count; first += kTileTokens) {
    const int64_t rest = count - first;
    const int64_t tokens = rest < kTileTokens ? rest : kTileTokens;
    std::byte* out = tiles + first / kTileTokens * piece.bytes;
    if (layout.bf16) {
      build_bf16_piece(layout, x + first, tokens, out);
    } else {
      build_integer_piece(layout, x + first, tokens, out);
    }
  }
}

// Integers: from this many tokens on, tiles pay. bfloat16 has no other path.
constexpr int64_t kTilePathTokens = 4;

int64_t tile_bytes(const PackedLayout& layout, int64_t count) {
  if (layout.e2m1 || (count < kTilePathTokens && !layout.bf16)) return 0;
  return (count + kTileTokens - 1) / kTileTokens * PieceLayout(layout).bytes;
}

// y of one tile of 16 rows by 16 tokens, which holds [row][token].
inline void store_outputs(const float* tile, const PackedTokens& tokens, int64_t first_token,
                          int64_t first_row, int64_t rows) {
  __m512i columns[16];
  for (int i = 0; i < 16; ++i) columns[i] = _mm512_load_si512(tile + i * 16);
  transpose16(columns);
  const int64_t rest = tokens.count - first_token;
  for (int64_t t = 0; t < 16 && t < rest; ++t) {
    _mm512_mask_storeu_ps(tokens.y[first_token + t] + tokens.y_offset + first_row, row_mask(rows),
                          _mm512_castsi512_ps(columns[t]));
  }
}

// Fetches the codes that a thread unpacks next, line after line in the order of memory while it
// unpacks those before: hardware prefetchers follow that order and not the one of the tiles.
class CodePrefetcher {
 public:
  // While `rows` rows from `first` are unpacked.
  CodePrefetcher(const AffineRows& weights, int64_t first, int64_t rows)
      : line_(first + rows < weights.rows ? weights.codes + (first + rows) * weights.codes_stride
                                          : weights.next) {}
  void fetch_line() {
    if (line_ == nullptr) return;
    _mm_prefetch(line_, _MM_HINT_T1);
    line_ += 64;
  }

 private:
  const uint8_t* line_;
};

// Fetches the scalars of the `rows` rows after those from `first`.
inline void fetch_scalars(const uint8_t* data, int64_t stride, int64_t first, int64_t rows) {
  const uint8_t* begin = data + (first + rows) * stride;
  for (int64_t offset = 0; offset < rows * stride; offset += 64) {
    _mm_prefetch(begin + offset, _MM_HINT_T1);
  }
}

// Scalars of 16 rows as floats [row][round_up_groups]. Rows that do not exist repeat the last one.
inline void widen_scalars(const uint8_t* data, int64_t stride, int64_t rows, ScalarFormat format,
                          int64_t groups, float* out) {
  const int64_t scalar_bytes = format == ScalarFormat::kF32 ? 4 : 2;
  const int64_t out_stride = round_up_groups(groups);
  for (int64_t r = 0; r < 16; ++r) {
    const uint8_t* row = data + (r < rows ? r : rows - 1) * stride;
    for (int64_t first = 0; first < groups; first += 16) {
      _mm512_store_ps(out + r * out_stride + first,
                      load_scalars(row + first * scalar_bytes, format, groups - first));
    }
  }
}

}  // namespace
}  // namespace motley
