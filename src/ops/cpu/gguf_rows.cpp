#include "ops/cpu/gguf_rows.h"

#include <algorithm>
#include <cstring>

#include "tensor/gguf_weights.h"

namespace motley {
namespace {

constexpr int64_t kGroup = 32;
constexpr uint8_t kZeroOfQ6 = 32;  // the code whose value is 0

// Where the planes of one row go.
struct Planes {
  uint8_t* codes;
  float* scales;
  float* biases;
};

void pack_nibbles(const uint8_t* codes, int64_t count, uint8_t* out) {
  for (int64_t i = 0; i < count / 2; ++i) {
    out[i] = static_cast<uint8_t>(codes[2 * i] | (codes[2 * i + 1] << 4));
  }
}

// Groups of 16 with number % 2 == part; the others are zero.
void write_q6_part(const GgufGroups& block, int part, uint8_t* codes, float* scales,
                   float* biases) {
  for (int group = 0; group < 16; ++group) {
    if (group % 2 == part) {
      std::memcpy(codes + 16 * group, block.codes + 16 * group, 16);
      scales[group / 2] = block.scales[group];
      biases[group / 2] = block.biases[group];
    } else {
      std::memset(codes + 16 * group, kZeroOfQ6, 16);
    }
  }
}

void write_row(GgufType type, const uint8_t* row, int64_t cols, int part, const Planes& out) {
  const GgufBlockFacts& facts = gguf_facts(type);
  const bool nibbles = gguf_affine_format(type).bits == 4;
  GgufGroups block;
  for (int64_t col = 0; col < cols; col += facts.values, row += facts.bytes) {
    gguf_unpack(type, row, &block);
    float* scales = out.scales + col / kGroup;
    float* biases = out.biases + col / kGroup;
    if (type == GgufType::kQ6K) {
      write_q6_part(block, part, out.codes + col, scales, biases);
      continue;
    }
    if (nibbles) {
      pack_nibbles(block.codes, facts.values, out.codes + col / 2);
    } else {
      std::memcpy(out.codes + col, block.codes, static_cast<size_t>(facts.values));
    }
    const auto bytes = static_cast<size_t>(facts.values / kGroup) * sizeof(float);
    std::memcpy(scales, block.scales, bytes);
    std::memcpy(biases, block.biases, bytes);
  }
}

// Rows [first, first + count) as affine rows in the scratch.
AffineRows make_affine(const WeightMatrix& weights, int64_t first, int64_t count, int part,
                       std::byte* scratch) {
  const GgufType type = *gguf_type(weights.format);
  const MlxAffineFormat format = gguf_affine_format(type);
  const int64_t groups = weights.cols / kGroup;
  auto* scales = reinterpret_cast<float*>(scratch);
  float* biases = scales + kGgufRows * groups;
  auto* codes = reinterpret_cast<uint8_t*>(biases + kGgufRows * groups);
  for (int64_t i = 0; i < count; ++i) {
    const auto* row = reinterpret_cast<const uint8_t*>(weights.codes.data +
                                                       (first + i) * weights.codes.row_bytes);
    write_row(
        type, row, weights.cols, part,
        {codes + i * format.row_bytes(weights.cols), scales + i * groups, biases + i * groups});
  }
  AffineRows rows;
  rows.codes = codes;
  rows.scales = reinterpret_cast<const uint8_t*>(scales);
  rows.biases = reinterpret_cast<const uint8_t*>(biases);
  rows.codes_stride = format.row_bytes(weights.cols);
  rows.scales_stride = rows.biases_stride = groups * int64_t{sizeof(float)};
  rows.rows = count;
  rows.cols = weights.cols;
  rows.bits = format.bits;
  rows.group_size = format.group_size;
  rows.scale_format = ScalarFormat::kF32;
  rows.next = codes;
  return rows;
}

// Adds the product with `rows` to what y holds, a tile of tokens at a time.
void add_product(const LinearKernels& kernels, const WeightMatrix& weights, const AffineRows& rows,
                 const ActivationPacks& x, const ProductOutput& output, int64_t y_offset,
                 std::byte* scratch) {
  float sums[kTileTokens][kGgufRows];
  float* sum_rows[kTileTokens];
  for (int64_t i = 0; i < kTileTokens; ++i) sum_rows[i] = sums[i];
  for (int64_t first = 0; first < x.count(); first += kTileTokens) {
    const int64_t count = std::min(kTileTokens, x.count() - first);
    const ActivationPacks some = x.slice(first, count);
    kernels.affine_rows(rows, some.layout(weights),
                        {some.rows(weights).data(), sum_rows, 0, count, some.tiles(weights)},
                        scratch);
    for (int64_t t = 0; t < count; ++t) {
      float* y = output.y[static_cast<size_t>(first + t)] + y_offset;
      for (int64_t n = 0; n < rows.rows; ++n) y[n] += sums[t][n];
    }
  }
}

}  // namespace

void multiply_gguf_rows(const LinearKernels& kernels, const WeightMatrix& weights,
                        const ActivationPacks& x, const ProductOutput& output, std::byte* scratch) {
  std::byte* rest = scratch + gguf_rows_bytes(weights.cols);
  const bool has_parts = gguf_type(weights.format) == GgufType::kQ6K;
  for (int64_t first = 0; first < weights.rows; first += kGgufRows) {
    const int64_t count = std::min(kGgufRows, weights.rows - first);
    const int64_t y_offset = output.y_offset + first;
    const AffineRows rows = make_affine(weights, first, count, 0, scratch);
    kernels.affine_rows(
        rows, x.layout(weights),
        {x.rows(weights).data(), output.y.data(), y_offset, x.count(), x.tiles(weights)}, rest);
    if (!has_parts) continue;
    const AffineRows odd = make_affine(weights, first, count, 1, scratch);
    add_product(kernels, weights, odd, x, output, y_offset, rest);
  }
}

}  // namespace motley
