#include "ops/cpu/gguf_rows.h"

#include <gtest/gtest.h>

#include <cstring>

#include "base/owned_context.h"
#include "ops/cpu/linear_test_util.h"
#include "ops/reference/reference_ops.h"
#include "support/random_cases.h"
#include "tensor/gguf_weights.h"

namespace motley {
namespace {

constexpr GgufType kTypes[] = {GgufType::kQ4_0, GgufType::kQ8_0, GgufType::kQ4K, GgufType::kQ5K,
                               GgufType::kQ6K};

// A matrix that owns its blocks, which begin at an odd address.
struct BlockMatrix {
  BlockMatrix(TestRng& rng, GgufType type, int64_t rows, int64_t cols) {
    const GgufBlockFacts& facts = gguf_facts(type);
    bytes.resize(static_cast<size_t>(1 + rows * gguf_row_bytes(type, cols)));
    std::vector<float> values(static_cast<size_t>(facts.values));
    for (size_t at = 1; at < bytes.size(); at += static_cast<size_t>(facts.bytes)) {
      for (float& value : values) value = normal(rng);
      gguf_encode(type, values, bytes.data() + at);
    }
    view = {.format = weight_format(type),
            .rows = rows,
            .cols = cols,
            .codes = {reinterpret_cast<const std::byte*>(bytes.data()) + 1,
                      gguf_row_bytes(type, cols)}};
  }
  std::vector<uint8_t> bytes;
  WeightMatrix view;
};

TestRows<float> multiply(const LinearKernels& kernels, NumericProfile profile,
                         const WeightMatrix& weights, TestRows<float>& x, RowCounts counts,
                         int threads, int64_t first_row = 0) {
  OwnedContext context({threads, false});
  HostStream stream(context.get());
  TestRows<float> y(counts.total(), weights.rows, 3);
  const LinearTarget target{weights, y.view};
  run_linear(kernels, matrix_arithmetic(profile), stream,
             x.view.slice_rows(first_row, counts.total()), counts, {&target, 1});
  return y;
}

TestRows<double> reference_product(const WeightMatrix& weights, TestRows<float>& x) {
  OwnedContext context({1, false});
  HostStream stream(context.get());
  TestRows<double> wide = widen(x);
  TestRows<double> y(x.view.rows(), weights.rows);
  const LinearTarget target{weights, y.view};
  reference_linear_ops().linear(stream, wide.view, {0, x.view.rows()}, {&target, 1});
  return y;
}

struct BlockCase {
  BlockCase(TestRng& rng, int index)
      : type(kTypes[index % 5]),
        matrix(rng, type, uniform(rng, 1, 70),
               gguf_facts(type).values *
                   uniform(rng, 1, 1200 / static_cast<int>(gguf_facts(type).values))),
        x(random_activations(rng,
                             uniform(rng, 0, 3) == 0 ? uniform(rng, 1, 40) : uniform(rng, 1, 5),
                             matrix.view.cols, uniform(rng, 0, 3))) {
    const int64_t rows = x.view.rows();
    const int64_t decode = uniform(rng, 0, static_cast<int>(rows));
    counts = {decode, rows - decode};
  }
  GgufType type;
  BlockMatrix matrix;
  TestRows<float> x;
  RowCounts counts;
};

TEST(GgufRows, WithinBoundsOfTheReference) {
  TestRng rng(20261201);
  for (int i = 0; i < random_cases(200); ++i) {
    BlockCase test(rng, i);
    TestRows<double> expected = reference_product(test.matrix.view, test.x);
    TestRows<double> magnitude = absolute_products(test.matrix.view, test.x);
    for (const CpuIsa isa : available_cpu_isas()) {
      for (const NumericProfile profile : {NumericProfile::kExact, NumericProfile::kFast}) {
        TestRows<float> y =
            multiply(linear_kernels(isa), profile, test.matrix.view, test.x, test.counts, 2);
        const double factor = error_factor(profile, test.matrix.view.cols);
        for (int64_t row = 0; row < y.view.rows(); ++row) {
          for (int64_t n = 0; n < y.view.cols(); ++n) {
            ASSERT_LE(std::fabs(y.at(row, n) - expected.at(row, n)), factor * magnitude.at(row, n))
                << gguf_facts(test.type).name << " " << cpu_isa_name(isa) << " case " << i;
          }
        }
      }
    }
  }
}

// A row alone, in another company and with other threads has the same bits.
TEST(GgufRows, BitsDependOnTheRowAlone) {
  TestRng rng(7);
  for (int i = 0; i < random_cases(40); ++i) {
    BlockCase test(rng, i);
    for (const CpuIsa isa : available_cpu_isas()) {
      const LinearKernels kernels = linear_kernels(isa);
      TestRows<float> all =
          multiply(kernels, NumericProfile::kFast, test.matrix.view, test.x, test.counts, 3);
      for (int64_t row = 0; row < test.x.view.rows(); ++row) {
        const bool decode = row < test.counts.decode;
        TestRows<float> alone = multiply(kernels, NumericProfile::kFast, test.matrix.view, test.x,
                                         {decode ? 1 : 0, decode ? 0 : 1}, 1, row);
        ASSERT_EQ(std::memcmp(all.view.row<float>(row), alone.view.row<float>(0),
                              static_cast<size_t>(all.view.cols()) * sizeof(float)),
                  0)
            << gguf_facts(test.type).name << " " << cpu_isa_name(isa) << " row " << row;
      }
    }
  }
}

// The same values as MLX affine weights give the same bits: nothing is lost on the way.
TEST(GgufRows, FourBitBlocksAreAffineGroups) {
  TestRng rng(11);
  BlockMatrix matrix(rng, GgufType::kQ4K, 24, 512);
  TestRows<float> x = random_activations(rng, 5, 512, 0);
  std::vector<uint8_t> codes(24 * 256);
  std::vector<float> scales(24 * 16);
  std::vector<float> biases(scales.size());
  for (size_t block = 0; block < 48; ++block) {
    GgufGroups groups;
    gguf_unpack(GgufType::kQ4K, matrix.bytes.data() + 1 + block * 144, &groups);
    mlx_pack_codes({groups.codes, 256}, 4, codes.data() + block * 128);
    std::memcpy(scales.data() + block * 8, groups.scales, 8 * sizeof(float));
    std::memcpy(biases.data() + block * 8, groups.biases, 8 * sizeof(float));
  }
  const WeightMatrix affine{.format = WeightFormat::kMlxAffine,
                            .rows = 24,
                            .cols = 512,
                            .codes = {reinterpret_cast<const std::byte*>(codes.data()), 256},
                            .scales = {reinterpret_cast<const std::byte*>(scales.data()), 64},
                            .biases = {reinterpret_cast<const std::byte*>(biases.data()), 64},
                            .affine = {.bits = 4, .group_size = 32},
                            .scale_dtype = DType::kF32};
  for (const CpuIsa isa : available_cpu_isas()) {
    const LinearKernels kernels = linear_kernels(isa);
    TestRows<float> a = multiply(kernels, NumericProfile::kFast, matrix.view, x, {2, 3}, 2);
    TestRows<float> b = multiply(kernels, NumericProfile::kFast, affine, x, {2, 3}, 2);
    for (int64_t row = 0; row < 5; ++row) {
      EXPECT_EQ(std::memcmp(a.view.row<float>(row), b.view.row<float>(row), 24 * sizeof(float)), 0);
    }
  }
}

}  // namespace
}  // namespace motley
