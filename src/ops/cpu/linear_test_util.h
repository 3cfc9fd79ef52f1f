// Random weights in every format, and the error bounds of the matrix products.
#pragma once

#include <cmath>
#include <cstring>
#include <random>
#include <string>
#include <vector>

#include "numeric/half.h"
#include "ops/cpu/linear_ops.h"

namespace motley {

using TestRng = std::mt19937_64;

inline int64_t uniform(TestRng& rng, int64_t low, int64_t high) {
  return std::uniform_int_distribution<int64_t>(low, high)(rng);
}
inline float normal(TestRng& rng) {
  return std::normal_distribution<float>(0.0f, 1.0f)(rng);
}

struct TestFormat {
  WeightFormat format = WeightFormat::kMlxAffine;
  MlxAffineFormat affine;
  DType scale_dtype = DType::kBf16;
  BlockFloatFormat block;

  int64_t granule() const {
    if (format == WeightFormat::kBlockFloat) return block.block_rows == 1 ? block.block_cols : 1;
    return format == WeightFormat::kMlxAffine ? affine.group_size : 1;
  }
  std::string name() const {
    if (format == WeightFormat::kF32) return "f32";
    if (format == WeightFormat::kF16) return "f16";
    if (format == WeightFormat::kBf16) return "bf16";
    if (format == WeightFormat::kBlockFloat) {
      return "block float " + std::to_string(static_cast<int>(block.scale)) + " x" +
             std::to_string(block.block_cols);
    }
    return "mlx" + std::to_string(affine.bits) + "g" + std::to_string(affine.group_size) +
           std::string(dtype_name(scale_dtype));
  }
};

inline TestFormat random_affine_format(TestRng& rng) {
  constexpr int kBits[] = {2, 3, 4, 4, 5, 6, 8};
  constexpr int kGroups[] = {32, 64, 64, 128};
  constexpr DType kScales[] = {DType::kBf16, DType::kBf16, DType::kF16, DType::kF32};
  TestFormat format;
  format.affine = {kBits[uniform(rng, 0, 6)], kGroups[uniform(rng, 0, 3)]};
  format.scale_dtype = kScales[uniform(rng, 0, 3)];
  return format;
}

inline TestFormat random_block_format(TestRng& rng) {
  constexpr BlockFloatFormat kFormats[] = {kFp8Block, kNvfp4Block, kMxfp4Block, kMxfp8Block};
  TestFormat format;
  format.format = WeightFormat::kBlockFloat;
  format.block = kFormats[uniform(rng, 0, 3)];
  return format;
}

inline TestFormat random_format(TestRng& rng) {
  constexpr WeightFormat kFloats[] = {WeightFormat::kF32, WeightFormat::kF16, WeightFormat::kBf16};
  if (uniform(rng, 0, 4) == 0) return random_block_format(rng);
  if (uniform(rng, 0, 3) != 0) return random_affine_format(rng);
  TestFormat format;
  format.format = kFloats[uniform(rng, 0, 2)];
  return format;
}

inline void append_scalar(std::vector<std::byte>& out, DType dtype, float value) {
  uint32_t bits;
  std::memcpy(&bits, &value, sizeof(bits));
  if (dtype == DType::kBf16) bits = to_bf16(value).bits;
  if (dtype == DType::kF16) bits = to_f16(value).bits;
  for (int64_t i = 0; i < dtype_bytes(dtype); ++i) {
    out.push_back(static_cast<std::byte>(bits >> (8 * i)));
  }
}

// A matrix that owns its planes. Each plane starts at an odd offset, and ends where its memory
// ends, so that a sanitizer sees any access beyond it.
class TestMatrix {
 public:
  TestMatrix(TestRng& rng, const TestFormat& format, int64_t rows, int64_t cols) {
    view.format = format.format;
    view.rows = rows;
    view.cols = cols;
    if (format.format == WeightFormat::kMlxAffine) {
      fill_affine(rng, format);
    } else if (format.format == WeightFormat::kBlockFloat) {
      fill_block(rng, format.block);
    } else {
      fill_float(rng);
    }
  }

  WeightMatrix view;

 private:
  WeightPlane plane(std::vector<std::byte>& storage, int64_t row_bytes) const {
    return {storage.data() + kOffset, row_bytes};
  }

  void fill_float(TestRng& rng) {
    const DType dtype = view.format == WeightFormat::kF32   ? DType::kF32
                        : view.format == WeightFormat::kF16 ? DType::kF16
                                                            : DType::kBf16;
    codes_.resize(kOffset);
    for (int64_t i = 0; i < view.rows * view.cols; ++i) append_scalar(codes_, dtype, normal(rng));
    view.codes = plane(codes_, view.cols * dtype_bytes(dtype));
  }

  void fill_affine(TestRng& rng, const TestFormat& format) {
    view.affine = format.affine;
    view.scale_dtype = format.scale_dtype;
    const int64_t row_bytes = format.affine.row_bytes(view.cols);
    codes_.resize(static_cast<size_t>(kOffset + view.rows * row_bytes));
    for (std::byte& byte : codes_) byte = static_cast<std::byte>(rng());
    scales_.resize(kOffset);
    biases_.resize(kOffset);
    const int64_t groups = format.affine.groups(view.cols);
    const float middle = static_cast<float>((1 << format.affine.bits) - 1) / 2;
    for (int64_t i = 0; i < view.rows * groups; ++i) {
      const float scale = normal(rng) / middle;
      append_scalar(scales_, format.scale_dtype, scale);
      append_scalar(biases_, format.scale_dtype, -scale * middle + 0.2f * normal(rng));
    }
    view.codes = plane(codes_, row_bytes);
    view.scales = plane(scales_, groups * dtype_bytes(format.scale_dtype));
    view.biases = plane(biases_, groups * dtype_bytes(format.scale_dtype));
  }

  void fill_block(TestRng& rng, const BlockFloatFormat& format) {
    view.block = format;
    view.tensor_scale =
        format.scale == BlockFloatFormat::Scale::kE4M3 ? std::exp2(normal(rng)) : 1.0f;
    const int64_t row_bytes = format.row_bytes(view.cols);
    codes_.resize(static_cast<size_t>(kOffset + view.rows * row_bytes));
    for (std::byte& byte : codes_) {
      byte = static_cast<std::byte>(rng());
      const bool nan = (byte & std::byte{0x7F}) == std::byte{0x7F};
      if (nan && format.element == BlockFloatFormat::Element::kE4M3) byte ^= std::byte{1};
    }
    scales_.resize(kOffset);
    const float middle = format.element == BlockFloatFormat::Element::kE4M3 ? 0x1p-6f : 0.3f;
    for (int64_t i = 0; i < format.block_lines(view.rows) * format.blocks(view.cols); ++i) {
      const float scale = middle * std::exp2(normal(rng));
      if (format.scale == BlockFloatFormat::Scale::kF32) {
        append_scalar(scales_, DType::kF32, scale);
      } else if (format.scale == BlockFloatFormat::Scale::kE4M3) {
        scales_.push_back(static_cast<std::byte>(to_e4m3(scale).bits));
      } else {
        scales_.push_back(static_cast<std::byte>(to_e8m0_up(scale).bits));
      }
    }
    view.codes = plane(codes_, row_bytes);
    view.scales = plane(scales_, format.blocks(view.cols) * format.scale_bytes());
  }

  static constexpr int64_t kOffset = 1;
  std::vector<std::byte> codes_;
  std::vector<std::byte> scales_;
  std::vector<std::byte> biases_;
};

// Rows with a stride wider than they are, as slices of a wider buffer have.
template <typename T>
struct TestRows {
  TestRows(int64_t rows, int64_t cols, int64_t gap = 0)
      : storage(static_cast<size_t>(rows * (cols + gap))) {
    view = view_of(storage.data(), {rows, cols});
    view.row_stride = cols + gap;
  }
  TestRows(TestRows&&) = default;  // a copy's view would refer to the original
  TestRows& operator=(TestRows&&) = default;

  T& at(int64_t row, int64_t col) { return view.template row<T>(row)[col]; }

  std::vector<T> storage;
  TensorView view;
};

// Activations as they occur: normal, each row with its own magnitude and a few large outliers.
inline TestRows<float> random_activations(TestRng& rng, int64_t rows, int64_t cols, int64_t gap) {
  TestRows<float> x(rows, cols, gap);
  for (int64_t row = 0; row < rows; ++row) {
    const auto magnitude = std::exp2(static_cast<float>(uniform(rng, -12, 6)));
    for (int64_t col = 0; col < cols; ++col) {
      const float outlier = uniform(rng, 0, 99) == 0 ? 30.0f : 1.0f;
      x.at(row, col) = normal(rng) * magnitude * outlier;
    }
  }
  return x;
}

inline TestRows<double> widen(TestRows<float>& x) {
  TestRows<double> wide(x.view.rows(), x.view.cols());
  for (int64_t row = 0; row < x.view.rows(); ++row) {
    for (int64_t col = 0; col < x.view.cols(); ++col) wide.at(row, col) = x.at(row, col);
  }
  return wide;
}

// sum |w x| of each output.
inline TestRows<double> absolute_products(const WeightMatrix& weights, TestRows<float>& x) {
  TestRows<double> result(x.view.rows(), weights.rows);
  std::vector<double> row(static_cast<size_t>(weights.cols));
  for (int64_t n = 0; n < weights.rows; ++n) {
    decode_row(weights, n, row.data());
    for (int64_t t = 0; t < x.view.rows(); ++t) {
      double sum = 0;
      for (int64_t k = 0; k < weights.cols; ++k) {
        sum += std::fabs(row[static_cast<size_t>(k)] * x.at(t, k));
      }
      result.at(t, n) = sum;
    }
  }
  return result;
}

// The factor of sum |w x| in the bounds of ops/linear.h.
inline double error_factor(NumericProfile profile, int64_t cols) {
  return profile == NumericProfile::kExact ? 8 * 0x1p-24 * std::sqrt(static_cast<double>(cols))
                                           : 2 * 0x1p-9;
}

struct KernelSet {
  std::string name;
  LinearKernels kernels;
};

// Every kernel set that this machine can run; the first is the portable one.
std::vector<KernelSet> testable_kernels();

}  // namespace motley
