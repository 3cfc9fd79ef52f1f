#include "tests/bench/linear_bench_cases.h"

#include <algorithm>
#include <memory>
#include <random>

#include "base/aligned_buffer.h"
#include "base/check.h"

namespace motley {
namespace {

constexpr int64_t kHidden = 2048;
constexpr int64_t kIntermediate = 512;
constexpr int kExperts = 256;
constexpr int kExpertsPerToken = 8;
// More than any cache holds, so that repeated calls find their weights in memory.
constexpr int64_t kColdBytes = int64_t{600} << 20;

// Random weights of plausible size; they live as long as the process.
class WeightPool {
 public:
  explicit WeightPool(int64_t bytes) {
    Result<AlignedBuffer> buffer = AlignedBuffer::allocate(static_cast<size_t>(bytes));
    MOTLEY_CHECK(buffer.is_ok(), "no memory for the weights");
    buffer_ = std::move(*buffer);
  }
  std::byte* take(int64_t bytes) {
    std::byte* result = buffer_.data() + used_;
    used_ += bytes;
    MOTLEY_CHECK(used_ <= static_cast<int64_t>(buffer_.size()), "pool too small");
    return result;
  }

 private:
  AlignedBuffer buffer_;
  int64_t used_ = 0;
};

int64_t matrix_bytes(const WeightMatrix& format, int64_t rows, int64_t cols) {
  if (format.format == WeightFormat::kBlockFloat) {
    return rows * format.block.row_bytes(cols) +
           format.block.block_lines(rows) * format.block.blocks(cols) * format.block.scale_bytes();
  }
  return rows * (format.affine.row_bytes(cols) + 4 * format.affine.groups(cols));
}

// Codes are random; where a code may be NaN it is none.
const std::byte* random_codes(WeightPool& pool, const WeightMatrix& format, int64_t bytes,
                              std::mt19937_64& rng) {
  const bool e4m3 = format.format == WeightFormat::kBlockFloat &&
                    format.block.element == BlockFloatFormat::Element::kE4M3;
  std::byte* codes = pool.take(bytes);
  auto* words = reinterpret_cast<uint64_t*>(codes);
  for (int64_t i = 0; i < bytes / 8; ++i) {
    words[i] = e4m3 ? rng() & 0xBFBFBFBFBFBFBFBFu : rng();
  }
  return codes;
}

// Scales that make a weight about 1 / 16, or less.
WeightMatrix random_matrix(WeightPool& pool, const WeightMatrix& format, int64_t rows, int64_t cols,
                           std::mt19937_64& rng) {
  WeightMatrix weights = format;
  weights.rows = rows;
  weights.cols = cols;
  if (format.format == WeightFormat::kBlockFloat) {
    const int64_t code_bytes = format.block.row_bytes(cols);
    weights.codes = {random_codes(pool, format, rows * code_bytes, rng), code_bytes};
    const int64_t line_bytes = format.block.blocks(cols) * format.block.scale_bytes();
    std::byte* scales = pool.take(weights.scale_lines() * line_bytes);
    const bool is_float = format.block.scale == BlockFloatFormat::Scale::kF32;
    auto* floats = reinterpret_cast<float*>(scales);
    std::fill(
        scales, scales + weights.scale_lines() * line_bytes,
        format.block.scale == BlockFloatFormat::Scale::kE4M3 ? std::byte{0x18} : std::byte{0x79});
    if (is_float) std::fill(floats, floats + weights.scale_lines() * line_bytes / 4, 0x1p-8f);
    weights.scales = {scales, line_bytes};
    return weights;
  }
  const int64_t code_bytes = format.affine.row_bytes(cols);
  weights.codes = {random_codes(pool, format, rows * code_bytes, rng), code_bytes};
  const int64_t groups = format.affine.groups(cols);
  auto* scales = reinterpret_cast<uint16_t*>(pool.take(rows * groups * 2));
  auto* biases = reinterpret_cast<uint16_t*>(pool.take(rows * groups * 2));
  std::fill(scales, scales + rows * groups, uint16_t{0x3B80});  // 2^-8
  std::fill(biases, biases + rows * groups, uint16_t{0xBD00});  // -2^-5
  weights.scales = {reinterpret_cast<const std::byte*>(scales), groups * 2};
  weights.biases = {reinterpret_cast<const std::byte*>(biases), groups * 2};
  return weights;
}

std::vector<float> random_floats(int64_t count, std::mt19937_64& rng) {
  std::normal_distribution<float> normal(0.0f, 1.0f);
  std::vector<float> values(static_cast<size_t>(count));
  for (float& value : values) value = normal(rng);
  return values;
}

struct DenseState {
  std::vector<WeightMatrix> copies;
  std::vector<float> x;
  std::vector<float> y;
  size_t next = 0;
};

BenchCase dense_case(const std::string& name, std::shared_ptr<DenseState> state, RowCounts counts,
                     CpuIsa isa, NumericProfile profile) {
  const WeightMatrix& weights = state->copies[0];
  BenchCase bench{name, counts.decode, counts.prefill};
  bench.weight_bytes = static_cast<double>(weights.bytes());
  bench.operations = 2.0 * static_cast<double>(weights.rows * weights.cols * counts.total());
  std::mt19937_64 rng(1);
  state->x = random_floats(512 * weights.cols, rng);
  state->y.resize(static_cast<size_t>(counts.total() * weights.rows));
  bench.run = [state, counts, isa, profile](Stream& stream) {
    const WeightMatrix& copy = state->copies[state->next++ % state->copies.size()];
    const LinearTarget target{copy, view_of(state->y.data(), {counts.total(), copy.rows})};
    const float* x = state->x.data();
    cpu_linear_ops(isa, profile)
        .linear(stream, view_of(x, {counts.total(), copy.cols}), counts, {&target, 1});
  };
  return bench;
}

struct ExpertsState {
  std::vector<ExpertWeights> layer;
  std::vector<std::vector<std::vector<int32_t>>> choices;  // [call][expert] pairs
  std::vector<float> x;
  std::vector<float> y;
  size_t next = 0;
};

// Each row takes random different experts.
std::vector<std::vector<int32_t>> choose(int64_t rows, std::mt19937_64& rng) {
  std::vector<std::vector<int32_t>> pairs(kExperts);
  std::vector<int32_t> order(kExperts);
  for (int32_t i = 0; i < kExperts; ++i) order[static_cast<size_t>(i)] = i;
  for (int32_t row = 0; row < rows; ++row) {
    std::shuffle(order.begin(), order.end(), rng);
    for (int32_t slot = 0; slot < kExpertsPerToken; ++slot) {
      pairs[static_cast<size_t>(order[static_cast<size_t>(slot)])].push_back(
          row * kExpertsPerToken + slot);
    }
  }
  return pairs;
}

BenchCase experts_case(const std::string& name, const std::vector<ExpertWeights>& layer,
                       RowCounts counts, CpuIsa isa, NumericProfile profile) {
  auto state = std::make_shared<ExpertsState>();
  state->layer = layer;
  std::mt19937_64 rng(2);
  double used = 0;
  for (int call = 0; call < 16; ++call) {
    state->choices.push_back(choose(counts.total(), rng));
    for (const auto& pairs : state->choices.back()) used += pairs.empty() ? 0 : 1;
  }
  state->x = random_floats(counts.total() * kHidden, rng);
  state->y.resize(static_cast<size_t>(counts.total() * kExpertsPerToken * kHidden));
  const ExpertWeights& one = layer[0];
  BenchCase bench{name, counts.decode, counts.prefill};
  bench.weight_bytes =
      used / 16 * static_cast<double>(one.gate.bytes() + one.up.bytes() + one.down.bytes());
  bench.operations =
      2.0 * static_cast<double>(3 * kHidden * kIntermediate * counts.total() * kExpertsPerToken);
  bench.run = [state, counts, isa, profile](Stream& stream) {
    const auto& choice = state->choices[state->next++ % state->choices.size()];
    std::vector<ExpertWork> work;
    for (size_t expert = 0; expert < choice.size(); ++expert) {
      if (!choice[expert].empty()) work.push_back({&state->layer[expert], choice[expert]});
    }
    const float* x = state->x.data();
    cpu_experts(isa, profile)(
        stream, view_of(x, {counts.total(), kHidden}), counts,
        {.experts_per_token = kExpertsPerToken}, work,
        view_of(state->y.data(), {counts.total() * kExpertsPerToken, kHidden}));
  };
  return bench;
}

struct DenseShape {
  const char* name;
  int64_t rows;
  int64_t cols;
};

void add_dense(const DenseShape& shape, CpuIsa isa, NumericProfile profile,
               const WeightMatrix& format, std::vector<BenchCase>& cases) {
  const int64_t bytes = matrix_bytes(format, shape.rows, shape.cols);
  const int64_t copies = std::max<int64_t>(1, kColdBytes / bytes);
  static std::vector<std::unique_ptr<WeightPool>> pools;
  pools.push_back(std::make_unique<WeightPool>(copies * bytes));
  std::mt19937_64 rng(3);
  std::vector<WeightMatrix> matrices;
  for (int64_t i = 0; i < copies; ++i) {
    matrices.push_back(random_matrix(*pools.back(), format, shape.rows, shape.cols, rng));
  }
  for (const RowCounts counts :
       {RowCounts{1, 0}, RowCounts{4, 0}, RowCounts{16, 0}, RowCounts{0, 512}}) {
    if (counts.total() == 512 && shape.rows > 100000) continue;  // the head sees one row a chunk
    auto state = std::make_shared<DenseState>();
    state->copies = matrices;
    cases.push_back(dense_case(shape.name, state, counts, isa, profile));
  }
}

void add_experts(CpuIsa isa, NumericProfile profile, const WeightMatrix& format,
                 std::vector<BenchCase>& cases) {
  const int64_t bytes = 2 * matrix_bytes(format, kIntermediate, kHidden) +
                        matrix_bytes(format, kHidden, kIntermediate);
  static std::vector<std::unique_ptr<WeightPool>> pools;
  pools.push_back(std::make_unique<WeightPool>(kExperts * bytes));
  WeightPool* pool = pools.back().get();
  std::mt19937_64 rng(4);
  std::vector<ExpertWeights> layer;
  for (int i = 0; i < kExperts; ++i) {
    layer.push_back({random_matrix(*pool, format, kIntermediate, kHidden, rng),
                     random_matrix(*pool, format, kIntermediate, kHidden, rng),
                     random_matrix(*pool, format, kHidden, kIntermediate, rng)});
  }
  for (const RowCounts counts :
       {RowCounts{1, 0}, RowCounts{4, 0}, RowCounts{16, 0}, RowCounts{0, 512}}) {
    cases.push_back(experts_case("experts", layer, counts, isa, profile));
  }
}

}  // namespace

bool parse_bench_format(const std::string& name, WeightMatrix* format) {
  format->scale_dtype = DType::kBf16;
  format->format = WeightFormat::kBlockFloat;
  if (name == "fp8") {
    format->block = kFp8Block;
  } else if (name == "nvfp4") {
    format->block = kNvfp4Block;
  } else if (name == "mxfp4") {
    format->block = kMxfp4Block;
  } else {
    format->format = WeightFormat::kMlxAffine;
    format->affine = {name.size() == 4 ? name[3] - '0' : 0, 64};
    return name.starts_with("mlx") && format->affine.is_valid();
  }
  return true;
}

std::vector<BenchCase> linear_bench_cases(CpuIsa isa, NumericProfile profile,
                                          const WeightMatrix& format, const std::string& filter) {
  constexpr DenseShape kShapes[] = {{"qkv", 8192, kHidden},
                                    {"z", 4096, kHidden},
                                    {"out", kHidden, 4096},
                                    {"head", 248320, kHidden}};
  std::vector<BenchCase> cases;
  for (const DenseShape& shape : kShapes) {
    if (std::string(shape.name).find(filter) != std::string::npos) {
      add_dense(shape, isa, profile, format, cases);
    }
  }
  if (std::string("experts").find(filter) != std::string::npos) {
    add_experts(isa, profile, format, cases);
  }
  return cases;
}

}  // namespace motley
