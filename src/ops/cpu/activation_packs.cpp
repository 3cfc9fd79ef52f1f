#include "ops/cpu/activation_packs.h"

#include <algorithm>
#include <cstring>

#include "ops/cpu/decoded_rows.h"
#include "ops/cpu/gguf_rows.h"
#include "tensor/gguf_weights.h"

namespace motley {
namespace {

// Below this many elements a parallel region costs more than it saves.
constexpr int64_t kParallelElements = 16384;

int64_t round_up(int64_t value, int64_t multiple) {
  return (value + multiple - 1) / multiple * multiple;
}

bool is_e2m1(const WeightMatrix& weights) {
  return weights.format == WeightFormat::kBlockFloat &&
         weights.block.element == BlockFloatFormat::Element::kE2M1;
}

bool has_nibbles(const WeightMatrix& weights) {
  if (const auto type = gguf_type(weights.format)) return gguf_affine_format(*type).bits == 4;
  return is_e2m1(weights) || weights.affine.bits == 4;
}

bool serves(const PackedLayout& layout, const WeightMatrix& weights) {
  return layout.group_size == packed_group_size(weights) &&
         layout.nibble_order == has_nibbles(weights) && layout.e2m1 == is_e2m1(weights);
}

ScalarFormat block_scale_format(const WeightMatrix& weights) {
  switch (weights.block.scale) {
    case BlockFloatFormat::Scale::kF32:
      return ScalarFormat::kF32;
    case BlockFloatFormat::Scale::kBf16:
      return ScalarFormat::kBf16;
    case BlockFloatFormat::Scale::kE4M3:
      return ScalarFormat::kE4M3;
    case BlockFloatFormat::Scale::kE8M0:
      break;
  }
  return ScalarFormat::kE8M0;
}

// What the kernels want of E4M3 weights.
bool has_whole_blocks(const WeightMatrix& weights) {
  return (weights.block.block_cols % kPackedLanes == 0 ||
          weights.block.block_cols >= weights.cols) &&
         weights.tensor_scale == 1.0f;
}

ScalarFormat scalar_format(const WeightMatrix& weights) {
  switch (weights.format) {
    case WeightFormat::kF32:
      return ScalarFormat::kF32;
    case WeightFormat::kF16:
      return ScalarFormat::kF16;
    case WeightFormat::kBf16:
      return ScalarFormat::kBf16;
    case WeightFormat::kBlockFloat:
      return block_scale_format(weights);
    case WeightFormat::kMlxAffine:
      break;
  }
  return weights.scale_dtype == DType::kF32   ? ScalarFormat::kF32
         : weights.scale_dtype == DType::kF16 ? ScalarFormat::kF16
                                              : ScalarFormat::kBf16;
}

const uint8_t* plane_bytes(const WeightPlane& plane) {
  return reinterpret_cast<const uint8_t*>(plane.data);
}

int64_t tile_bytes_of(const LinearKernels& kernels, const PackedLayout& layout, int64_t count) {
  return kernels.tile_bytes == nullptr ? 0 : kernels.tile_bytes(layout, count);
}

// The bytes of a row that no group covers: the last block's tail and the padding of the scales.
void clear_padding(const PackedLayout& layout, std::byte* row) {
  const int64_t block_bytes = kPackedBlock * (layout.bf16 ? 2 : layout.limbs);
  if (layout.cols % kPackedBlock != 0) {
    std::memset(row + (layout.blocks - 1) * block_bytes, 0, static_cast<size_t>(block_bytes));
  }
  std::memset(row + layout.scales_offset, 0,
              static_cast<size_t>(layout.row_bytes - layout.scales_offset));
}

}  // namespace

int64_t packed_group_size(const WeightMatrix& weights) {
  if (const auto type = gguf_type(weights.format)) return gguf_affine_format(*type).group_size;
  if (weights.format == WeightFormat::kMlxAffine) return weights.affine.group_size;
  return is_e2m1(weights) ? weights.block.block_cols : 0;
}

PackedLayout packed_layout(const WeightMatrix& weights, int limbs, bool bf16) {
  const int64_t cols = weights.cols;
  const int64_t group_size = packed_group_size(weights);
  MOTLEY_CHECK(group_size > 0 && cols > 0 && cols % group_size == 0,
               "columns must be whole groups");
  PackedLayout layout;
  layout.cols = cols;
  layout.groups = cols / group_size;
  layout.blocks = round_up(cols, kPackedBlock) / kPackedBlock;
  layout.group_size = static_cast<int32_t>(group_size);
  layout.limbs = limbs;
  layout.nibble_order = has_nibbles(weights);
  layout.bf16 = bf16;
  layout.e2m1 = is_e2m1(weights);
  if (bf16) {
    layout.scales_offset = layout.sums_offset = layout.row_bytes = 2 * layout.blocks * kPackedBlock;
    return layout;
  }
  const int64_t scale_bytes = round_up(layout.groups, kPackedLanes) * 4;
  layout.scales_offset = layout.blocks * kPackedBlock * limbs;
  layout.sums_offset = layout.scales_offset + scale_bytes;
  layout.row_bytes = layout.sums_offset + (layout.e2m1 && limbs == 3 ? 2 : 1) * scale_bytes;
  return layout;
}

const ActivationPacks::Pack& ActivationPacks::find(const WeightMatrix& weights) const {
  for (int i = 0; i < pack_count_; ++i) {
    if (serves(packs_[static_cast<size_t>(i)].layout, weights)) {
      return packs_[static_cast<size_t>(i)];
    }
  }
  MOTLEY_CHECK(false, "weights were not announced by require()");
  return packs_[0];
}

void ActivationPacks::require(const LinearKernels& kernels, Stream& stream,
                              const WeightMatrix& weights) {
  MOTLEY_CHECK(weights.cols == cols_, "weights and x disagree on in_features");
  if (packed_group_size(weights) == 0) return;
  for (int i = 0; i < pack_count_; ++i) {
    if (serves(packs_[static_cast<size_t>(i)].layout, weights)) return;
  }
  const bool bf16 = kernels.bfloat16_tiles && arithmetic_.fast && !is_e2m1(weights) &&
                    has_nibbles(weights) && packed_group_size(weights) >= 64;
  const PackedLayout layout = packed_layout(weights, arithmetic_.limbs, bf16);
  auto* base = static_cast<std::byte*>(
      stream.scratch().allocate_bytes(static_cast<size_t>(layout.row_bytes * count())));
  std::byte** rows = stream.scratch().allocate<std::byte*>(count());
  for (int64_t row = 0; row < count(); ++row) rows[row] = base + row * layout.row_bytes;
  packs_[static_cast<size_t>(pack_count_++)] = {
      layout, {rows, float_rows_.size()}, nullptr, tile_bytes_of(kernels, layout, kTileTokens)};
}

void ActivationPacks::pack(const LinearKernels& kernels, Stream& stream) {
  for (int i = 0; i < pack_count_; ++i) {
    const Pack& pack = packs_[static_cast<size_t>(i)];
    const auto pack_rows = [&](int /*worker*/, int64_t begin, int64_t end) {
      for (int64_t row = begin; row < end; ++row) {
        std::byte* out = pack.rows[static_cast<size_t>(row)];
        clear_padding(pack.layout, out);
        kernels.pack_groups(pack.layout, float_rows_[static_cast<size_t>(row)], 0,
                            pack.layout.groups, out);
      }
    };
    if (count() * cols_ < kParallelElements) {
      pack_rows(0, 0, count());
    } else {
      stream.threads().parallel_for(count(), std::max<int64_t>(1, kParallelElements / 4 / cols_),
                                    pack_rows);
    }
  }
}

void ActivationPacks::clear() {
  for (int i = 0; i < pack_count_; ++i) {
    const Pack& pack = packs_[static_cast<size_t>(i)];
    for (std::byte* row : pack.rows) clear_padding(pack.layout, row);
  }
}

void ActivationPacks::build_tiles(const LinearKernels& kernels, Stream& stream) {
  for (int i = 0; i < pack_count_; ++i) {
    Pack& pack = packs_[static_cast<size_t>(i)];
    const int64_t bytes = tile_bytes_of(kernels, pack.layout, count());
    if (bytes == 0) continue;
    auto* tiles =
        static_cast<std::byte*>(stream.scratch().allocate_bytes(static_cast<size_t>(bytes)));
    pack.tiles = tiles;
    stream.threads().parallel_for((count() + kTileTokens - 1) / kTileTokens, 1,
                                  [&](int /*worker*/, int64_t begin, int64_t end) {
                                    const int64_t first = begin * kTileTokens;
                                    kernels.build_tiles(
                                        pack.layout, pack.rows.data() + first,
                                        std::min(count(), end * kTileTokens) - first,
                                        tiles + begin * pack.piece_bytes);
                                  });
  }
}

void ActivationPacks::build_tiles(const LinearKernels& kernels, const WeightMatrix& weights,
                                  std::byte* memory) {
  if (tile_bytes(kernels, weights) == 0) return;
  const Pack& pack = find(weights);
  if (pack.tiles == memory) return;
  for (Pack& other : packs_) other.tiles = nullptr;
  kernels.build_tiles(pack.layout, pack.rows.data(), count(), memory);
  packs_[static_cast<size_t>(&pack - packs_.data())].tiles = memory;
}

int64_t ActivationPacks::tile_bytes(const LinearKernels& kernels,
                                    const WeightMatrix& weights) const {
  if (packed_group_size(weights) == 0) return 0;
  return tile_bytes_of(kernels, layout(weights), count());
}

ActivationPacks ActivationPacks::gather(Stream& stream, std::span<const int32_t> rows) const {
  const auto new_count = static_cast<int64_t>(rows.size());
  const float** floats = stream.scratch().allocate<const float*>(new_count);
  for (size_t i = 0; i < rows.size(); ++i) floats[i] = float_rows_[static_cast<size_t>(rows[i])];
  ActivationPacks result({floats, rows.size()}, cols_, arithmetic_);
  result.pack_count_ = pack_count_;
  for (size_t p = 0; p < static_cast<size_t>(pack_count_); ++p) {
    std::byte** packed = stream.scratch().allocate<std::byte*>(new_count);
    for (size_t i = 0; i < rows.size(); ++i) {
      packed[i] = packs_[p].rows[static_cast<size_t>(rows[i])];
    }
    result.packs_[p] = {packs_[p].layout, {packed, rows.size()}, nullptr, packs_[p].piece_bytes};
  }
  return result;
}

ActivationPacks ActivationPacks::slice(int64_t first, int64_t count) const {
  ActivationPacks result = *this;
  const auto begin = static_cast<size_t>(first);
  const auto size = static_cast<size_t>(count);
  result.float_rows_ = float_rows_.subspan(begin, size);
  for (size_t p = 0; p < static_cast<size_t>(pack_count_); ++p) {
    result.packs_[p].rows = packs_[p].rows.subspan(begin, size);
    if (packs_[p].tiles == nullptr) continue;
    MOTLEY_CHECK(first % kTileTokens == 0, "a slice of tiles begins with one");
    result.packs_[p].tiles += first / kTileTokens * packs_[p].piece_bytes;
  }
  return result;
}

void multiply_rows(const LinearKernels& kernels, const WeightMatrix& weights,
                   const ActivationPacks& x, const ProductOutput& output, bool fast,
                   std::byte* scratch, const std::byte* next) {
  MOTLEY_CHECK(static_cast<int64_t>(output.y.size()) == x.count(), "one output row per input row");
  if (gguf_type(weights.format)) {
    return multiply_gguf_rows(kernels, weights, x, output, scratch);
  }
  if (packed_group_size(weights) == 0) {
    FloatRows rows{plane_bytes(weights.codes), weights.codes.row_bytes, weights.rows, weights.cols,
                   scalar_format(weights)};
    if (weights.format == WeightFormat::kBlockFloat) {
      if (!has_whole_blocks(weights)) {
        return multiply_decoded_rows(kernels, weights, x, output, fast, scratch);
      }
      rows.format = ScalarFormat::kE4M3;
      rows.scales = plane_bytes(weights.scales);
      rows.scales_stride = weights.scales.row_bytes;
      rows.scale_format = scalar_format(weights);
      rows.block_rows = weights.block.block_rows;
      rows.block_cols = weights.block.block_cols;
      rows.first_in_block = weights.first_in_block;
    }
    kernels.float_rows(rows, {x.float_rows().data(), output.y.data(), output.y_offset, x.count()},
                       fast, scratch);
    return;
  }
  AffineRows rows;
  rows.codes = plane_bytes(weights.codes);
  rows.scales = plane_bytes(weights.scales);
  rows.biases = plane_bytes(weights.biases);
  rows.codes_stride = weights.codes.row_bytes;
  rows.scales_stride = weights.scales.row_bytes;
  rows.biases_stride = weights.biases.row_bytes;
  rows.rows = weights.rows;
  rows.cols = weights.cols;
  rows.bits = has_nibbles(weights) ? 4 : weights.affine.bits;
  rows.group_size = static_cast<int32_t>(packed_group_size(weights));
  if (is_e2m1(weights)) rows.multiplier = 0.5f * weights.tensor_scale;
  rows.scale_format = scalar_format(weights);
  rows.next = next != nullptr ? reinterpret_cast<const uint8_t*>(next)
                              : rows.codes + rows.rows * rows.codes_stride;
  kernels.affine_rows(
      rows, x.layout(weights),
      {x.rows(weights).data(), output.y.data(), output.y_offset, x.count(), x.tiles(weights)},
      scratch);
}

}  // namespace motley
