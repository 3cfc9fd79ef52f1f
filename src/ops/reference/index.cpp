#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>
#include <vector>

#include "ops/reference/reference_ops.h"

namespace motley {
namespace {

void layer_norm(Stream&, const ConstTensorView& x, const ConstTensorView& weight,
                const ConstTensorView& bias, float epsilon, const TensorView& y) {
  const int64_t dim = x.cols();
  for (int64_t r = 0; r < x.rows(); ++r) {
    const double* in = x.row<double>(r);
    double* out = y.row<double>(r);
    const double mean = std::accumulate(in, in + dim, 0.0) / static_cast<double>(dim);
    double variance = 0;
    for (int64_t i = 0; i < dim; ++i) variance += (in[i] - mean) * (in[i] - mean);
    const double scale = 1.0 / std::sqrt(variance / static_cast<double>(dim) + double{epsilon});
    for (int64_t i = 0; i < dim; ++i) {
      out[i] = (in[i] - mean) * scale * double{weight.as<float>()[i]} + double{bias.as<float>()[i]};
    }
  }
}

void scores(Stream& stream, const IndexScoresArgs& args) {
  const int64_t heads = args.q.shape[1];
  const int64_t dim = args.q.shape[2];
  for (const RowCacheSegment& segment : args.segments) {
    MOTLEY_CHECK(segment.cache.shard.is_whole(), "an indexer sees every key");
    stream.threads().parallel_for(
        segment.rows.rows, 1, [&](int /*worker*/, int64_t begin, int64_t end) {
          for (int64_t t = begin; t < end; ++t) {
            const int64_t row = segment.rows.first_row + t;
            const int64_t keys = (segment.rows.first_position.value + t + 1) / args.tokens_per_key;
            for (int64_t k = 0; k < keys; ++k) {
              const auto* key = reinterpret_cast<const double*>(segment.cache.row(k));
              double sum = 0;
              for (int64_t h = 0; h < heads; ++h) {
                const double* q = args.q.row<double>(row) + h * dim;
                const double dot = std::inner_product(q, q + dim, key, 0.0);
                sum += args.weights.row<double>(row)[h] * double{args.scale} * std::max(dot, 0.0);
              }
              args.scores.row<double>(row)[k] = sum;
            }
          }
        });
  }
}

void select(Stream&, const IndexSelectArgs& args) {
  const int64_t top_k = args.chosen.cols();
  for (int64_t r = 0; r < args.scores.rows(); ++r) {
    int32_t* chosen = args.chosen.row<int32_t>(r);
    if (!args.forced.is_empty() && args.forced.row<int32_t>(r)[0] >= 0) {
      const int32_t* forced = args.forced.row<int32_t>(r);
      const auto* end = std::find(forced, forced + top_k, -1);
      std::copy(forced, end, chosen);
      *args.counts.row<int32_t>(r) = static_cast<int32_t>(end - forced);
      continue;
    }
    std::vector<double> row(args.scores.row<double>(r),
                            args.scores.row<double>(r) + *args.candidates.row<int32_t>(r));
    for (double& score : row) {
      if (std::isnan(score)) score = -std::numeric_limits<double>::infinity();
    }
    std::vector<int32_t> order(row.size());
    std::iota(order.begin(), order.end(), 0);
    std::stable_sort(order.begin(), order.end(), [&](int32_t a, int32_t b) {
      return row[static_cast<size_t>(a)] > row[static_cast<size_t>(b)];
    });
    order.resize(std::min(order.size(), static_cast<size_t>(top_k)));
    std::sort(order.begin(), order.end());
    std::copy(order.begin(), order.end(), chosen);
    *args.counts.row<int32_t>(r) = static_cast<int32_t>(order.size());
  }
}

}  // namespace

IndexOps reference_index_ops() {
  return {layer_norm, scores, select};
}

}  // namespace motley
