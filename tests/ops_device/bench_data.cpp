#include <algorithm>
#include <cstdio>
#include <cstring>

#include "numeric/half.h"
#include "ops_device/bench.h"

namespace motley::ops_device {

Bench::Bench(Backend& backend, double matrix_flops_per_s, const std::string& only)
    : backend_(backend),
      ops_(backend.table(NumericProfile::kFast)),
      copy_bytes_per_s_(backend.copy_bytes_per_s()),
      matrix_flops_per_s_(matrix_flops_per_s) {
  for (size_t begin = 0; begin < only.size();) {
    const size_t end = std::min(only.find('|', begin), only.size());
    only_.push_back(only.substr(begin, end - begin));
    begin = end + 1;
  }
}

bool Bench::wants(const std::string& start) const {
  return only_.empty() || std::any_of(only_.begin(), only_.end(), [&](const std::string& part) {
           return part.find(start) != std::string::npos || start.find(part) != std::string::npos;
         });
}

std::byte* Bench::repeat(const void* block, size_t block_bytes, size_t bytes) {
  constexpr size_t kPiece = size_t{4} << 20;
  std::vector<std::byte> piece(std::max(std::min(bytes, kPiece), block_bytes));
  for (size_t at = 0; at < piece.size(); at += block_bytes) {
    std::memcpy(piece.data() + at, block, std::min(block_bytes, piece.size() - at));
  }
  std::byte* memory = backend_.allocate(bytes);
  for (size_t at = 0; at < bytes; at += piece.size()) {
    backend_.upload(memory + at, piece.data(), std::min(piece.size(), bytes - at));
  }
  return memory;
}

std::vector<WeightMatrix> Bench::weights(const WeightKind& kind, int64_t rows, int64_t cols,
                                         int64_t copies) {
  const bool affine = kind.format == WeightFormat::kMlxAffine;
  const int64_t code_row = affine ? cols * kind.bits / 8 : cols * 2;
  const int64_t scale_row = affine ? cols / kind.group_size * 2 : 0;
  std::vector<std::byte> blob(static_cast<size_t>(rows * (code_row + 2 * scale_row)));
  const auto put_half = [&](int64_t at, double value) {
    const Bf16 bits = to_bf16(static_cast<float>(value));
    std::memcpy(blob.data() + at, &bits, sizeof(bits));
  };
  for (int64_t i = 0; affine && i + 8 <= rows * code_row; i += 8) {
    const uint64_t bits = random_.bits();
    std::memcpy(blob.data() + i, &bits, sizeof(bits));
  }
  const int64_t first_half = affine ? rows * code_row : 0;
  for (auto i = first_half; i + 2 <= static_cast<int64_t>(blob.size()); i += 2) {
    put_half(i, 0.02 * static_cast<double>(random_.integer(-100, 100)) / 100);
  }
  std::vector<WeightMatrix> result;
  for (int64_t copy = 0; copy < copies; ++copy) {
    const std::byte* base = repeat(blob.data(), blob.size(), blob.size());
    WeightMatrix weights;
    weights.format = kind.format;
    weights.space = stream().space();
    weights.rows = rows;
    weights.cols = cols;
    weights.codes = {base, code_row};
    if (affine) {
      weights.scales = {base + rows * code_row, scale_row};
      weights.biases = {base + rows * (code_row + scale_row), scale_row};
      weights.affine = {kind.bits, kind.group_size};
      weights.scale_dtype = DType::kBf16;
    }
    result.push_back(weights);
  }
  return result;
}

TensorView Bench::tensor(const Shape& shape) {
  const auto count = static_cast<size_t>(shape.elements());
  std::vector<float> block(std::min<size_t>(count, size_t{1} << 20));
  for (float& value : block) value = static_cast<float>(random_.integer(-1000, 1000)) * 1e-3f;
  return make_view(repeat(block.data(), block.size() * sizeof(float), count * sizeof(float)),
                   DType::kF32, shape, stream().space());
}

TensorView Bench::ints(const Shape& shape, const std::vector<int32_t>& block) {
  const size_t bytes = static_cast<size_t>(shape.elements()) * sizeof(int32_t);
  return make_view(repeat(block.data(), block.size() * sizeof(int32_t), bytes), DType::kI32, shape,
                   stream().space());
}

std::byte* Bench::random_bf16(int64_t elements) {
  std::vector<Bf16> block(static_cast<size_t>(std::min<int64_t>(elements, 4096)));
  for (Bf16& value : block) {
    value = to_bf16(static_cast<float>(random_.integer(-1000, 1000)) * 1e-3f);
  }
  return repeat(block.data(), block.size() * sizeof(Bf16),
                static_cast<size_t>(elements) * sizeof(Bf16));
}

void Bench::header() {
  std::printf("\ncopy bandwidth %.0f GB/s", copy_bytes_per_s_ * 1e-9);
  if (matrix_flops_per_s_ > 0)
    std::printf(", bf16 matrix rate %.0f TFLOP/s", matrix_flops_per_s_ * 1e-12);
  std::printf("\n%-44s %10s %10s %8s %7s %8s %7s\n", "op (fast profile)", "us", "MB", "GB/s",
              "of copy", "TFLOP/s", "of rate");
}

void Bench::measure(const std::string& name, double bytes, double flops, int repeats,
                    const std::function<void(int)>& work) {
  const auto named = [&](const std::string& part) { return name.find(part) != std::string::npos; };
  if (!only_.empty() && std::none_of(only_.begin(), only_.end(), named)) return;
  const double us = std::max(backend_.time_us(repeats, work), 1e-3);
  const double bytes_per_s = bytes / us * 1e6;
  const double flops_per_s = flops / us * 1e6;
  std::printf("%-44s %10.2f %10.2f %8.0f %6.1f%% %8.1f", name.c_str(), us, bytes * 1e-6,
              bytes_per_s * 1e-9, 100 * bytes_per_s / copy_bytes_per_s_, flops_per_s * 1e-12);
  if (matrix_flops_per_s_ > 0) std::printf(" %6.1f%%", 100 * flops_per_s / matrix_flops_per_s_);
  std::printf("\n");
  std::fflush(stdout);
}

}  // namespace motley::ops_device
