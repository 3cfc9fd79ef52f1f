// Every weight format: rows decode to known values, and a slice of rows is the same rows.
#include "tensor/weight_matrix.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <string>
#include <vector>

#include "numeric/half.h"

namespace motley {
namespace {

constexpr int64_t kRows = 5;
constexpr int64_t kCols = 64;
constexpr int64_t kPadding = 3;  // bytes between rows: planes need no alignment

// A matrix with its storage.
struct Stored {
  std::vector<std::byte> codes;
  std::vector<std::byte> scales;
  std::vector<std::byte> biases;
  WeightMatrix matrix;
  std::vector<std::vector<double>> values;  // [row][col], computed when it was made
};

template <typename T>
void append(std::vector<std::byte>* plane, T value) {
  std::byte raw[sizeof(T)];
  std::memcpy(raw, &value, sizeof(T));
  plane->insert(plane->end(), raw, raw + sizeof(T));
}
void pad(std::vector<std::byte>* plane) {
  plane->insert(plane->end(), kPadding, std::byte{0xFF});  // NaN when it is read as a number
}

// Exact in every format.
float value_at(int64_t row, int64_t col) {
  return static_cast<float>(row * 16 - col) / 8;
}

Stored plain_matrix(WeightFormat format) {
  Stored stored;
  for (int64_t r = 0; r < kRows; ++r) {
    stored.values.emplace_back();
    for (int64_t c = 0; c < kCols; ++c) {
      const float value = value_at(r, c);
      stored.values.back().push_back(double{value});
      if (format == WeightFormat::kF32) append(&stored.codes, value);
      if (format == WeightFormat::kF16) append(&stored.codes, to_f16(value));
      if (format == WeightFormat::kBf16) append(&stored.codes, to_bf16(value));
    }
    pad(&stored.codes);
  }
  const auto row_bytes = static_cast<int64_t>(stored.codes.size()) / kRows;
  stored.matrix.format = format;
  stored.matrix.rows = kRows;
  stored.matrix.cols = kCols;
  stored.matrix.codes = {stored.codes.data(), row_bytes};
  return stored;
}

template <typename T>
void append_scalar(std::vector<std::byte>* plane, float value) {
  if constexpr (std::is_same_v<T, Bf16>) append(plane, to_bf16(value));
  if constexpr (std::is_same_v<T, F16>) append(plane, to_f16(value));
  if constexpr (std::is_same_v<T, float>) append(plane, value);
}

template <typename Scale>
Stored affine_matrix(MlxAffineFormat format, DType scale_dtype) {
  Stored stored;
  for (int64_t r = 0; r < kRows; ++r) {
    std::vector<uint8_t> unpacked;
    for (int64_t c = 0; c < kCols; ++c) {
      unpacked.push_back(static_cast<uint8_t>((r * 31 + c * 7) % (int64_t{1} << format.bits)));
    }
    std::vector<uint8_t> packed(static_cast<size_t>(kCols * format.bits / 8));
    mlx_pack_codes(unpacked, format.bits, packed.data());
    for (const uint8_t byte : packed) append(&stored.codes, byte);
    pad(&stored.codes);
    stored.values.emplace_back();
    for (int64_t group = 0; group < kCols / format.group_size; ++group) {
      const float scale = static_cast<float>(r + 1) / static_cast<float>(4 << group);
      const auto bias = static_cast<float>(group - r);
      append_scalar<Scale>(&stored.scales, scale);
      append_scalar<Scale>(&stored.biases, bias);
      for (int64_t i = 0; i < format.group_size; ++i) {
        const uint8_t code = unpacked[static_cast<size_t>(group * format.group_size + i)];
        stored.values.back().push_back(double{scale} * code + double{bias});
      }
    }
    pad(&stored.scales);
    pad(&stored.biases);
  }
  const auto row_bytes = [](const std::vector<std::byte>& plane) {
    return static_cast<int64_t>(plane.size()) / kRows;
  };
  stored.matrix.format = WeightFormat::kMlxAffine;
  stored.matrix.rows = kRows;
  stored.matrix.cols = kCols;
  stored.matrix.affine = format;
  stored.matrix.scale_dtype = scale_dtype;
  stored.matrix.codes = {stored.codes.data(), row_bytes(stored.codes)};
  stored.matrix.scales = {stored.scales.data(), row_bytes(stored.scales)};
  stored.matrix.biases = {stored.biases.data(), row_bytes(stored.biases)};
  return stored;
}

// Codes of every kind under scales that are powers of two, exact in float32. Rows are not padded in
// the scales' plane: a line of it serves `format.block_rows` of them, of which the first matrix row
// is the second.
Stored block_matrix(BlockFloatFormat format) {
  Stored stored;
  constexpr int64_t kFirst = 1;
  const bool spans_rows = format.block_rows > 1;
  stored.matrix.format = WeightFormat::kBlockFloat;
  stored.matrix.rows = kRows;
  stored.matrix.cols = kCols;
  stored.matrix.block = format;
  stored.matrix.tensor_scale = 0.25f;
  stored.matrix.first_in_block = spans_rows ? kFirst : 0;
  const auto scale_exponent = [](int64_t line, int64_t block) {
    return static_cast<int>((line + block) % 5) - 2;
  };
  const int64_t lines = stored.matrix.scale_lines();
  for (int64_t line = 0; line < lines; ++line) {
    for (int64_t block = 0; block < format.blocks(kCols); ++block) {
      const float scale = std::ldexp(1.0f, scale_exponent(line, block));
      if (format.scale == BlockFloatFormat::Scale::kF32) append(&stored.scales, scale);
      if (format.scale == BlockFloatFormat::Scale::kBf16) append(&stored.scales, to_bf16(scale));
      if (format.scale == BlockFloatFormat::Scale::kE4M3) append(&stored.scales, to_e4m3(scale));
      if (format.scale == BlockFloatFormat::Scale::kE8M0) {
        append(&stored.scales, to_e8m0_up(scale));
      }
    }
    pad(&stored.scales);
  }
  for (int64_t r = 0; r < kRows; ++r) {
    stored.values.emplace_back();
    std::vector<uint8_t> codes;
    for (int64_t i = 0; i < format.row_bytes(kCols); ++i) {
      auto code = static_cast<uint8_t>(r * 83 + i * 29);
      if (format.element == BlockFloatFormat::Element::kE4M3 && (code & 127) == 127) code = 3;
      codes.push_back(code);
      append(&stored.codes, code);
    }
    pad(&stored.codes);
    const int64_t line = (stored.matrix.first_in_block + r) / format.block_rows;
    for (int64_t c = 0; c < kCols; ++c) {
      const double element = block_float_element(format.element, codes.data(), c);
      const int exponent = scale_exponent(line, c / format.block_cols);
      stored.values.back().push_back(element * std::ldexp(0.25, exponent));
    }
  }
  stored.matrix.codes = {stored.codes.data(), format.row_bytes(kCols) + kPadding};
  stored.matrix.scales = {stored.scales.data(), static_cast<int64_t>(stored.scales.size()) / lines};
  return stored;
}

struct FormatCase {
  std::string name;
  Stored (*make)();
};
void PrintTo(const FormatCase& format, std::ostream* out) {
  *out << format.name;
}

template <int kBits, int kGroup, typename Scale>
Stored make_affine() {
  const DType dtype = std::is_same_v<Scale, Bf16>  ? DType::kBf16
                      : std::is_same_v<Scale, F16> ? DType::kF16
                                                   : DType::kF32;
  return affine_matrix<Scale>({kBits, kGroup}, dtype);
}

class EveryFormat : public ::testing::TestWithParam<FormatCase> {};

INSTANTIATE_TEST_SUITE_P(
    Formats, EveryFormat,
    ::testing::Values(FormatCase{"F32", [] { return plain_matrix(WeightFormat::kF32); }},
                      FormatCase{"F16", [] { return plain_matrix(WeightFormat::kF16); }},
                      FormatCase{"Bf16", [] { return plain_matrix(WeightFormat::kBf16); }},
                      FormatCase{"Affine2", make_affine<2, 32, Bf16>},
                      FormatCase{"Affine3", make_affine<3, 32, Bf16>},
                      FormatCase{"Affine4", make_affine<4, 64, F16>},
                      FormatCase{"Affine5", make_affine<5, 32, Bf16>},
                      FormatCase{"Affine6", make_affine<6, 32, float>},
                      FormatCase{"Affine8", make_affine<8, 32, F16>},
                      FormatCase{"Nvfp4", [] { return block_matrix(kNvfp4Block); }},
                      FormatCase{"Mxfp4", [] { return block_matrix(kMxfp4Block); }},
                      FormatCase{"Mxfp8", [] { return block_matrix(kMxfp8Block); }},
                      FormatCase{"Fp8Squares",
                                 [] {
                                   BlockFloatFormat format = kFp8Block;
                                   format.block_rows = 2;
                                   format.block_cols = 48;  // the last is partial
                                   return block_matrix(format);
                                 }},
                      FormatCase{"Fp8Bf16Rows",
                                 [] {
                                   BlockFloatFormat format = kFp8Block;
                                   format.scale = BlockFloatFormat::Scale::kBf16;
                                   format.block_rows = 1;
                                   format.block_cols = kCols;
                                   return block_matrix(format);
                                 }}),
    [](const auto& tested) { return tested.param.name; });

TEST_P(EveryFormat, RowsDecodeToWhatWasStored) {
  const Stored stored = GetParam().make();
  for (int64_t r = 0; r < kRows; ++r) {
    std::vector<double> exact(kCols);
    std::vector<float> rounded(kCols);
    decode_row(stored.matrix, r, exact.data());
    decode_row(stored.matrix, r, rounded.data());
    EXPECT_EQ(exact, stored.values[static_cast<size_t>(r)]);
    for (size_t c = 0; c < kCols; ++c) EXPECT_EQ(double{rounded[c]}, exact[c]);
  }
}

TEST_P(EveryFormat, ASliceHoldsTheSameRows) {
  const Stored stored = GetParam().make();
  for (int64_t begin = 0; begin <= kRows; ++begin) {
    for (int64_t count = 0; begin + count <= kRows; ++count) {
      const WeightMatrix slice = stored.matrix.slice_rows(begin, count);
      EXPECT_EQ(slice.rows, count);
      EXPECT_EQ(slice.cols, kCols);
      EXPECT_EQ(slice.is_empty(), count == 0);
      std::vector<double> row(kCols);
      for (int64_t r = 0; r < count; ++r) {
        decode_row(slice, r, row.data());
        EXPECT_EQ(row, stored.values[static_cast<size_t>(begin + r)]);
      }
    }
  }
}

TEST_P(EveryFormat, ASliceOfASliceCountsFromTheFirst) {
  const Stored stored = GetParam().make();
  std::vector<double> row(kCols);
  decode_row(stored.matrix.slice_rows(1, 4).slice_rows(2, 1), 0, row.data());
  EXPECT_EQ(row, stored.values[3]);
}

TEST_P(EveryFormat, BytesAreThoseOfAllPlanesAndAddUp) {
  const Stored stored = GetParam().make();
  auto whole =
      static_cast<int64_t>(stored.codes.size() + stored.scales.size() + stored.biases.size());
  // The first line of scales belongs to a row before the matrix.
  if (stored.matrix.first_in_block > 0) whole -= stored.matrix.scales.row_bytes;
  EXPECT_EQ(stored.matrix.bytes(), whole);
  EXPECT_EQ(stored.matrix.slice_rows(0, 2).bytes() + stored.matrix.slice_rows(2, 3).bytes(),
            stored.matrix.bytes());
}

TEST(WeightMatrixDeathTest, RowsOutOfRangeAreABug) {
  const Stored stored = plain_matrix(WeightFormat::kBf16);
  std::vector<float> row(kCols);
  EXPECT_DEATH(decode_row(stored.matrix, kRows, row.data()), "row out of range");
  EXPECT_DEATH(decode_row(stored.matrix, -1, row.data()), "row out of range");
  EXPECT_DEATH((void)stored.matrix.slice_rows(3, 3), "row slice out of range");
  EXPECT_DEATH((void)stored.matrix.slice_rows(-1, 1), "row slice out of range");
  EXPECT_DEATH(decode_row(stored.matrix.slice_rows(0, 1), 1, row.data()), "row out of range");
}

// float32 decoding rounds product and sum once.
TEST(WeightMatrix, Float32DecodingIsFused) {
  std::vector<uint8_t> codes(4, 0);
  const std::vector<uint8_t> unpacked(8, 3);
  mlx_pack_codes(unpacked, 4, codes.data());
  const float scale = 1.0f / 3.0f;
  const float bias = -1.0f;
  WeightMatrix matrix;
  matrix.format = WeightFormat::kMlxAffine;
  matrix.rows = 1;
  matrix.cols = 8;
  matrix.affine = {4, 8};
  matrix.scale_dtype = DType::kF32;
  matrix.codes = {reinterpret_cast<const std::byte*>(codes.data()), 4};
  matrix.scales = {reinterpret_cast<const std::byte*>(&scale), 4};
  matrix.biases = {reinterpret_cast<const std::byte*>(&bias), 4};
  float row[8];
  decode_row(matrix, 0, row);
  // Rounded twice, 3 * (1 / 3) is 1 and the result 0; once, the error of 1 / 3 remains.
  EXPECT_EQ(row[0], static_cast<float>(3 * double{scale} - 1));
  EXPECT_NE(row[0], 0.0f);
}

}  // namespace
}  // namespace motley
