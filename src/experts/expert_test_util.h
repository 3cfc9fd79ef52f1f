// Experts in a file that is not a checkpoint, for the tests of layout and store. Tests only.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <random>
#include <vector>

#include "ops/moe.h"

namespace motley {

// A file of random bytes and the experts of layer 1 in it; layer 0 has none.
struct FakeFile {
  std::vector<std::byte> bytes;
  std::vector<std::vector<ExpertWeights>> layers;
};

inline WeightMatrix matrix_at(std::vector<std::byte>& file, int64_t rows, int64_t cols,
                              std::array<int64_t, 3> at) {
  WeightMatrix matrix;
  matrix.format = WeightFormat::kMlxAffine;
  matrix.affine = {4, 64};
  matrix.scale_dtype = DType::kBf16;
  matrix.rows = rows;
  matrix.cols = cols;
  matrix.codes = {file.data() + at[0], cols / 2};
  matrix.scales = {file.data() + at[1], cols / 64 * 2};
  matrix.biases = {file.data() + at[2], cols / 64 * 2};
  return matrix;
}

// Stacked by projection: nine areas, each with all experts one after the other.
inline FakeFile stacked_file(int experts, int64_t first_offset) {
  constexpr int64_t kHidden = 256;
  constexpr int64_t kInner = 64;
  FakeFile fake;
  fake.bytes.resize(1 << 20);
  std::mt19937_64 rng(1);
  for (std::byte& byte : fake.bytes) byte = static_cast<std::byte>(rng());
  int64_t at = first_offset;
  const auto area = [&](int64_t bytes) {
    const int64_t begin = at;
    at += bytes * experts + 37;  // nothing is aligned
    return begin;
  };
  const int64_t codes = kHidden * kInner / 2;
  const int64_t scalars = kHidden * kInner / 64 * 2;
  std::array<std::array<int64_t, 3>, 3> areas;
  for (auto& of_matrix : areas) of_matrix = {area(codes), area(scalars), area(scalars)};
  // Scales and biases are 1: random bytes would hold NaN.
  for (const auto& of_matrix : areas) {
    for (const size_t plane : {size_t{1}, size_t{2}}) {
      for (int64_t i = 0; i < scalars * experts; i += 2) {
        fake.bytes[static_cast<size_t>(of_matrix[plane] + i)] = std::byte{0x80};
        fake.bytes[static_cast<size_t>(of_matrix[plane] + i + 1)] = std::byte{0x3F};
      }
    }
  }
  fake.layers.resize(2);
  for (int64_t e = 0; e < experts; ++e) {
    const auto place = [&](int which) {
      const auto& a = areas[static_cast<size_t>(which)];
      return std::array{a[0] + e * codes, a[1] + e * scalars, a[2] + e * scalars};
    };
    fake.layers[1].push_back({matrix_at(fake.bytes, kInner, kHidden, place(0)),
                              matrix_at(fake.bytes, kInner, kHidden, place(1)),
                              matrix_at(fake.bytes, kHidden, kInner, place(2))});
  }
  return fake;
}

}  // namespace motley
