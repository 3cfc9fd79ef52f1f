// linear and embed: error against float64, and rows that do not depend on their company.
#include <cmath>
#include <cstring>
#include <vector>

#include "ops_device/harness.h"

namespace motley::ops_device {
namespace {

// sum |w x| for every output, row-major: what the error limits are stated in.
std::vector<double> absolute_products(const Twin& x, const WeightMatrix& weights) {
  const int64_t rows = x.shape[0];
  std::vector<double> result(static_cast<size_t>(rows * weights.rows));
  std::vector<double> w(static_cast<size_t>(weights.cols));
  for (int64_t n = 0; n < weights.rows; ++n) {
    decode_row(weights, n, w.data());
    for (int64_t r = 0; r < rows; ++r) {
      double sum = 0;
      for (int64_t k = 0; k < weights.cols; ++k) {
        sum += std::fabs(w[static_cast<size_t>(k)] *
                         x.values[static_cast<size_t>(r * weights.cols + k)]);
      }
      result[static_cast<size_t>(r * weights.rows + n)] = sum;
    }
  }
  return result;
}

double product_limit(NumericProfile profile, int64_t cols) {
  if (profile == NumericProfile::kFast) return std::ldexp(2.0, -9);
  return std::ldexp(8.0, -24) * std::sqrt(static_cast<double>(cols));
}

struct LinearShape {
  int64_t cols;
  RowCounts counts;
  std::vector<int64_t> targets;  // rows of each W
};

LinearShape random_shape(Random& random) {
  LinearShape shape;
  shape.cols = 128 * random.integer(1, 12);
  shape.counts = {random.integer(0, 20), random.integer(0, 3) * random.integer(0, 60)};
  for (int64_t target = random.integer(1, 3); target > 0; --target) {
    shape.targets.push_back(random.integer(1, 300));
  }
  return shape;
}

// Enough rows of W that a device gives every multiprocessor a large tile, the last one in part.
LinearShape tall_shape(Random& random) {
  return {128 * random.integer(1, 20), {random.integer(1, 20), 0}, {random.integer(9000, 9300)}};
}

void linear_case(Harness& h, NumericProfile profile, const WeightKind& kind,
                 const LinearShape& shape) {
  const int64_t cols = shape.cols;
  const RowCounts counts = shape.counts;
  if (counts.total() == 0) return;
  Twin x = h.random_twin({counts.total(), cols});
  std::vector<TwinWeights> weights;
  std::vector<Twin> y;
  std::vector<LinearTarget> on_device;
  std::vector<LinearTarget> on_host;
  for (const int64_t rows : shape.targets) {
    weights.push_back(h.random_weights(kind, rows, cols));
    y.push_back(h.output_twin({counts.total(), weights.back().reference.rows}));
  }
  for (size_t i = 0; i < y.size(); ++i) {
    on_device.push_back({weights[i].device, y[i].device});
    on_host.push_back({weights[i].reference, y[i].reference});
  }
  const OpTable table = h.backend().table(profile);
  table.linear.linear(h.device(), x.device, counts, on_device);
  h.reference().linear.linear(h.host(), x.reference, counts, on_host);
  h.device().synchronize();
  for (size_t i = 0; i < y.size(); ++i) {
    const std::vector<double> scale = absolute_products(x, weights[i].reference);
    const double factor = product_limit(profile, cols);
    h.check(y[i], [&](size_t at) { return factor * scale[at]; });
  }
  // One row of each role alone gives the same bits.
  for (const int64_t row : {int64_t{0}, counts.total() - 1}) {
    const RowCounts alone{row < counts.decode ? 1 : 0, row < counts.decode ? 0 : 1};
    Twin single = h.output_twin({1, y[0].shape[1]});
    const LinearTarget target{weights[0].device, single.device};
    table.linear.linear(h.device(), x.device.slice_rows(row, 1), alone, {&target, 1});
    h.device().synchronize();
    const std::vector<float> a = h.fetch(single.device);
    const std::vector<float> b = h.fetch(y[0].device.slice_rows(row, 1));
    h.check_true(std::memcmp(a.data(), b.data(), a.size() * sizeof(float)) == 0);
  }
  h.end_case();
}

void embed_case(Harness& h, const WeightKind& kind) {
  const int64_t cols = 128 * h.random().integer(1, 4);
  const TwinWeights table = h.random_weights(kind, h.random().integer(1, 100), cols);
  std::vector<int32_t> ids(static_cast<size_t>(h.random().integer(1, 30)));
  for (int32_t& id : ids) {
    id = static_cast<int32_t>(h.random().integer(0, table.reference.rows - 1));
  }
  Twin out = h.output_twin({static_cast<int64_t>(ids.size()), cols});
  h.backend().table(NumericProfile::kExact).linear.embed(h.device(), table.device, ids, out.device);
  h.reference().linear.embed(h.host(), table.reference, ids, out.reference);
  h.check(out, 1e-6);
  h.end_case();
}

std::string kind_name(const WeightKind& kind) {
  if (kind.format == WeightFormat::kF32) return "F32";
  if (kind.format == WeightFormat::kF16) return "F16";
  if (kind.format == WeightFormat::kBf16) return "BF16";
  return "affine " + std::to_string(kind.bits) + " bit";
}

}  // namespace

void run_linear_cases(Harness& h, int cases) {
  std::vector<WeightKind> kinds = {
      {WeightFormat::kBf16}, {WeightFormat::kF16}, {WeightFormat::kF32}};
  for (const int bits : {2, 3, 4, 5, 6, 8}) kinds.push_back({WeightFormat::kMlxAffine, bits});
  for (const NumericProfile profile : {NumericProfile::kExact, NumericProfile::kFast}) {
    for (WeightKind kind : kinds) {
      h.begin("linear " + std::string(numeric_profile_name(profile)), kind_name(kind));
      for (int i = 0; i < cases; ++i) {
        kind.group_size = h.random().pick({32, 64, 128});
        kind.scale_dtype = h.random().pick({DType::kBf16, DType::kBf16, DType::kF16, DType::kF32});
        linear_case(h, profile, kind, random_shape(h.random()));
      }
      if (profile == NumericProfile::kFast && kind.format == WeightFormat::kMlxAffine) {
        linear_case(h, profile, kind, tall_shape(h.random()));
        kind.scale_dtype = DType::kBf16;
        linear_case(h, profile, kind, tall_shape(h.random()));
      }
    }
  }
  h.begin("embed", "every format");
  for (const WeightKind& kind : kinds) embed_case(h, kind);
}

}  // namespace motley::ops_device
