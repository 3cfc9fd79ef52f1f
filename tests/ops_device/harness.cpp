#include "ops_device/harness.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>

#include "numeric/half.h"

namespace motley::ops_device {

uint64_t Random::bits() {
  // splitmix64
  state_ += 0x9E3779B97F4A7C15ull;
  uint64_t z = state_;
  z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9ull;
  z = (z ^ (z >> 27)) * 0x94D049BB133111EBull;
  return z ^ (z >> 31);
}

int64_t Random::integer(int64_t low, int64_t high) {
  return low + static_cast<int64_t>(bits() % static_cast<uint64_t>(high - low + 1));
}

double Random::normal() {
  const double u = (static_cast<double>(bits() >> 11) + 0.5) * 0x1p-53;
  const double v = static_cast<double>(bits() >> 11) * 0x1p-53;
  return double{
      static_cast<float>(std::sqrt(-2.0 * std::log(u)) * std::cos(6.283185307179586 * v))};
}

Twin Harness::make_twin(const Shape& shape, const std::vector<float>& start) {
  Twin twin;
  twin.shape = shape;
  const size_t bytes = start.size() * sizeof(float);
  std::byte* memory = backend_.allocate(bytes);
  backend_.upload(memory, start.data(), bytes);
  twin.device = make_view(memory, DType::kF32, shape, backend_.stream().space());
  return twin;
}

Twin Harness::random_twin(const Shape& shape, double scale) {
  std::vector<float> start(static_cast<size_t>(shape.elements()));
  for (float& value : start) value = static_cast<float>(scale * random_.normal());
  Twin twin = make_twin(shape, start);
  twin.values.assign(start.begin(), start.end());
  twin.reference = view_of(twin.values.data(), shape);
  return twin;
}

Twin Harness::output_twin(const Shape& shape) {
  const auto count = static_cast<size_t>(shape.elements());
  Twin twin = make_twin(shape, std::vector<float>(count, std::numeric_limits<float>::quiet_NaN()));
  twin.values.assign(count, 0.0);
  twin.reference = view_of(twin.values.data(), shape);
  return twin;
}

namespace {

void put_scalar(std::byte* target, DType dtype, float value) {
  if (dtype == DType::kBf16) {
    const Bf16 bits = to_bf16(value);
    std::memcpy(target, &bits, sizeof(bits));
  } else if (dtype == DType::kF16) {
    const F16 bits = to_f16(value);
    std::memcpy(target, &bits, sizeof(bits));
  } else {
    std::memcpy(target, &value, sizeof(value));
  }
}

int64_t align_up(int64_t value) {
  return (value + 255) / 256 * 256;
}

// The planes of a matrix one after another, each aligned.
struct Layout {
  int64_t code_bytes = 0;   // per row
  int64_t scale_bytes = 0;  // per row
  int64_t scales = 0;       // offsets
  int64_t biases = 0;
  int64_t total = 0;
};

DType element_type(WeightFormat format) {
  if (format == WeightFormat::kF32) return DType::kF32;
  return format == WeightFormat::kF16 ? DType::kF16 : DType::kBf16;
}

Layout layout_of(const WeightKind& kind, int64_t rows, int64_t cols) {
  Layout layout;
  const MlxAffineFormat affine{kind.bits, kind.group_size};
  const bool is_affine = kind.format == WeightFormat::kMlxAffine;
  layout.code_bytes =
      is_affine ? affine.row_bytes(cols) : cols * dtype_bytes(element_type(kind.format));
  layout.scale_bytes = is_affine ? affine.groups(cols) * dtype_bytes(kind.scale_dtype) : 0;
  layout.scales = align_up(rows * layout.code_bytes);
  layout.biases = layout.scales + align_up(rows * layout.scale_bytes);
  layout.total = layout.biases + align_up(rows * layout.scale_bytes);
  return layout;
}

WeightMatrix matrix_at(const std::byte* base, const Layout& layout, const WeightKind& kind,
                       int64_t rows, int64_t cols, MemorySpace space) {
  WeightMatrix weights;
  weights.format = kind.format;
  weights.space = space;
  weights.rows = rows;
  weights.cols = cols;
  weights.codes = {base, layout.code_bytes};
  if (kind.format == WeightFormat::kMlxAffine) {
    weights.scales = {base + layout.scales, layout.scale_bytes};
    weights.biases = {base + layout.biases, layout.scale_bytes};
    weights.affine = {kind.bits, kind.group_size};
    weights.scale_dtype = kind.scale_dtype;
  }
  return weights;
}

}  // namespace

TwinWeights Harness::random_weights(const WeightKind& kind, int64_t rows, int64_t cols) {
  const Layout layout = layout_of(kind, rows, cols);
  TwinWeights twin;
  twin.storage.resize(static_cast<size_t>(layout.total));
  std::byte* base = twin.storage.data();
  if (kind.format == WeightFormat::kMlxAffine) {
    for (int64_t i = 0; i < rows * layout.code_bytes; ++i) {
      base[i] = static_cast<std::byte>(random_.bits());
    }
    const int64_t size = dtype_bytes(kind.scale_dtype);
    const double levels = std::ldexp(1.0, kind.bits) - 1;
    for (int64_t i = 0; i < rows * layout.scale_bytes / size; ++i) {
      const double scale = (1.0 + 0.3 * random_.normal()) * 2.0 / levels;
      const double bias = -scale * levels * (0.5 + 0.1 * random_.normal());
      put_scalar(base + layout.scales + i * size, kind.scale_dtype, static_cast<float>(scale));
      put_scalar(base + layout.biases + i * size, kind.scale_dtype, static_cast<float>(bias));
    }
  } else {
    const DType dtype = element_type(kind.format);
    for (int64_t i = 0; i < rows * cols; ++i) {
      put_scalar(base + i * dtype_bytes(dtype), dtype, static_cast<float>(random_.normal()));
    }
  }
  std::byte* memory = backend_.allocate(twin.storage.size());
  backend_.upload(memory, base, twin.storage.size());
  twin.reference = matrix_at(base, layout, kind, rows, cols, MemorySpace::kHost);
  twin.device = matrix_at(memory, layout, kind, rows, cols, backend_.stream().space());
  return twin;
}

std::vector<float> Harness::fetch(const TensorView& view) {
  std::vector<float> values(static_cast<size_t>(view.shape.elements()));
  backend_.download(values.data(), view.data, values.size() * sizeof(float));
  return values;
}

TensorView Harness::upload_ints(const std::vector<int32_t>& values, const Shape& shape) {
  std::byte* memory = backend_.allocate(values.size() * sizeof(int32_t));
  backend_.upload(memory, values.data(), values.size() * sizeof(int32_t));
  return make_view(memory, DType::kI32, shape, backend_.stream().space());
}

std::vector<int32_t> Harness::fetch_ints(const TensorView& view) {
  std::vector<int32_t> values(static_cast<size_t>(view.shape.elements()));
  backend_.download(values.data(), view.data, values.size() * sizeof(int32_t));
  return values;
}

void Harness::begin(std::string op, std::string shapes) {
  lines_.push_back({std::move(op), std::move(shapes)});
}

void Harness::check(const Twin& twin, const std::function<double(size_t)>& limit) {
  Line& line = lines_.back();
  const std::vector<float> actual = fetch(twin.device);
  for (size_t i = 0; i < actual.size(); ++i) {
    const double expected = twin.values[i];
    if (std::isinf(expected) && double{actual[i]} == expected) continue;
    const double error = std::fabs(double{actual[i]} - expected);
    const double bound = limit(i);
    if (!(error <= bound)) line.passed = false;  // NaN too
    line.worst_error = std::max(line.worst_error, std::isnan(error) ? INFINITY : error);
    if (bound > 0) line.worst_share = std::max(line.worst_share, error / bound);
  }
}

void Harness::check(const Twin& twin, double relative, double floor) {
  double largest = floor;
  for (const double value : twin.values) {
    if (std::isfinite(value)) largest = std::max(largest, std::fabs(value));
  }
  check(twin, [&](size_t) { return relative * largest; });
}

void Harness::check_true(bool condition) {
  if (!condition) lines_.back().passed = false;
}

void Harness::end_case() {
  device().synchronize();
  if (!backend_.status().is_ok()) lines_.back().passed = false;
  ++lines_.back().cases;
  backend_.release_all();
}

}  // namespace motley::ops_device
