#include "io/column_order.h"

#include <cstring>
#include <optional>
#include <vector>

#include "base/check.h"
#include "tensor/gguf_weights.h"

namespace motley {
namespace {

constexpr int64_t kAlignment = 64;

int64_t aligned(int64_t bytes) {
  return (bytes + kAlignment - 1) / kAlignment * kAlignment;
}

// Bytes of one head in a row, when the format can move it as it is.
std::optional<int64_t> head_bytes(const WeightMatrix& source, const TiledHeads& heads) {
  const auto type = gguf_type(source.format);
  if (type) {
    if (heads.width % gguf_facts(*type).values != 0) return std::nullopt;
    return gguf_row_bytes(*type, heads.width);
  }
  if (source.format == WeightFormat::kF32) return heads.width * 4;
  if (source.format == WeightFormat::kF16 || source.format == WeightFormat::kBf16) {
    return heads.width * 2;
  }
  return std::nullopt;
}

// Bits of the affine format that holds the same values; 0: there is none.
int affine_bits(const WeightMatrix& source, const TiledHeads& heads) {
  const auto type = gguf_type(source.format);
  if (!type || heads.width % 32 != 0) return 0;
  return *type == GgufType::kQ4K ? 4 : *type == GgufType::kQ5K ? 5 : 0;
}

// Moves heads of `head_bytes` bytes from `in` to their places in `out`.
void move_heads(const TiledHeads& heads, int64_t bytes, const std::byte* in, std::byte* out) {
  for (int64_t head = 0; head < heads.count(); ++head) {
    std::memcpy(out + head * bytes, in + heads.stored(head) * bytes, static_cast<size_t>(bytes));
  }
}

// Codes, scales and biases of one row, heads in order.
struct AffineRow {
  std::vector<uint8_t> codes;
  std::vector<float> scales;
  std::vector<float> biases;
};

void read_affine_row(const WeightMatrix& source, int64_t row, AffineRow* out) {
  const GgufType type = *gguf_type(source.format);
  const GgufBlockFacts& facts = gguf_facts(type);
  const int64_t groups = facts.values / facts.group_size;
  const auto* data =
      reinterpret_cast<const uint8_t*>(source.codes.data + row * source.codes.row_bytes);
  GgufGroups block;
  for (int64_t i = 0; i < source.cols / facts.values; ++i) {
    gguf_unpack(type, data + i * facts.bytes, &block);
    std::memcpy(out->codes.data() + i * facts.values, block.codes,
                static_cast<size_t>(facts.values));
    std::memcpy(out->scales.data() + i * groups, block.scales,
                static_cast<size_t>(groups) * sizeof(float));
    std::memcpy(out->biases.data() + i * groups, block.biases,
                static_cast<size_t>(groups) * sizeof(float));
  }
}

template <typename T>
void move_heads(const TiledHeads& heads, const std::vector<T>& in, std::byte* out) {
  const auto bytes = static_cast<int64_t>(in.size() * sizeof(T)) / heads.count();
  move_heads(heads, bytes, reinterpret_cast<const std::byte*>(in.data()), out);
}

void write_affine(const WeightMatrix& source, const TiledHeads& heads, const WeightMatrix& result,
                  std::byte* codes, std::byte* scales, std::byte* biases) {
  const auto cols = static_cast<size_t>(source.cols);
  AffineRow row{std::vector<uint8_t>(cols), std::vector<float>(cols / 32),
                std::vector<float>(cols / 32)};
  std::vector<uint8_t> ordered(cols);
  for (int64_t i = 0; i < source.rows; ++i) {
    read_affine_row(source, i, &row);
    move_heads(heads, row.codes, reinterpret_cast<std::byte*>(ordered.data()));
    mlx_pack_codes(ordered, result.affine.bits,
                   reinterpret_cast<uint8_t*>(codes + i * result.codes.row_bytes));
    move_heads(heads, row.scales, scales + i * result.scales.row_bytes);
    move_heads(heads, row.biases, biases + i * result.biases.row_bytes);
  }
}

}  // namespace

WeightMatrix untiled_format(const WeightMatrix& source, const TiledHeads& heads) {
  MOTLEY_CHECK(heads.count() * heads.width == source.cols, "heads do not cover the columns");
  WeightMatrix result = source;
  result.codes.data = result.scales.data = result.biases.data = nullptr;
  if (head_bytes(source, heads)) return result;
  if (const int bits = affine_bits(source, heads); bits != 0) {
    result.format = WeightFormat::kMlxAffine;
    result.affine = {.bits = bits, .group_size = 32};
    result.scale_dtype = DType::kF32;
    result.codes.row_bytes = result.affine.row_bytes(source.cols);
    result.scales.row_bytes = result.biases.row_bytes = source.cols / 32 * int64_t{sizeof(float)};
    return result;
  }
  result.format = WeightFormat::kF32;
  result.codes.row_bytes = source.cols * int64_t{sizeof(float)};
  return result;
}

int64_t untiled_bytes(const WeightMatrix& source, const TiledHeads& heads) {
  const WeightMatrix result = untiled_format(source, heads);
  return aligned(result.rows * result.codes.row_bytes) +
         aligned(result.rows * result.scales.row_bytes) +
         aligned(result.rows * result.biases.row_bytes);
}

WeightMatrix untile_columns(const WeightMatrix& source, const TiledHeads& heads, std::byte* out) {
  WeightMatrix result = untiled_format(source, heads);
  result.codes.data = out;
  if (result.format == WeightFormat::kMlxAffine) {
    std::byte* const scales = out + aligned(result.rows * result.codes.row_bytes);
    std::byte* const biases = scales + aligned(result.rows * result.scales.row_bytes);
    write_affine(source, heads, result, out, scales, biases);
    result.scales.data = scales;
    result.biases.data = biases;
    return result;
  }
  const std::optional<int64_t> bytes = head_bytes(source, heads);
  std::vector<float> values(static_cast<size_t>(bytes ? 0 : source.cols));
  for (int64_t row = 0; row < source.rows; ++row) {
    std::byte* const to = out + row * result.codes.row_bytes;
    if (bytes) {
      move_heads(heads, *bytes, source.codes.data + row * source.codes.row_bytes, to);
    } else {
      decode_row(source, row, values.data());
      move_heads(heads, values, to);
    }
  }
  return result;
}

}  // namespace motley
