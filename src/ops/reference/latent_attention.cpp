#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>
#include <vector>

#include "ops/reference/reference_ops.h"

namespace motley {
namespace {

void rotate(Stream&, const RotateArgs& args) {
  const int width = args.rotary.rotary_dim;
  const int64_t heads = args.x.shape[1];
  for (const RowSegment& segment : args.segments) {
    for (int32_t t = 0; t < segment.rows; ++t) {
      const auto position = static_cast<double>(segment.first_position.value + t);
      for (int64_t h = 0; h < heads; ++h) {
        const double* x = args.x.row<double>(segment.first_row + t) + h * args.x.shape[2];
        double* y = args.y.row<double>(segment.first_row + t) + h * args.y.shape[2];
        for (int i = 0; i < width / 2; ++i) {
          const double angle = position * std::pow(args.rotary.theta, -2.0 * i / width);
          const int a = args.interleaved ? 2 * i : i;
          const int b = args.interleaved ? 2 * i + 1 : i + width / 2;
          const double first = x[a];
          const double second = x[b];
          y[a] = first * std::cos(angle) - second * std::sin(angle);
          y[b] = second * std::cos(angle) + first * std::sin(angle);
        }
      }
    }
  }
}

void row_write(Stream&, const ConstTensorView& x, std::span<const RowCacheSegment> segments) {
  for (const RowCacheSegment& segment : segments) {
    const RowCacheView& cache = segment.cache;
    for (int32_t t = 0; t < segment.rows.rows; ++t) {
      const int64_t position = segment.rows.first_position.value + t;
      if (!cache.shard.holds(position)) continue;
      std::copy_n(x.row<double>(segment.rows.first_row + t), x.cols(),
                  reinterpret_cast<double*>(cache.row(cache.shard.tokens_below(position))));
    }
  }
}

void head_linear(Stream&, const ConstTensorView& x, std::span<const WeightMatrix> weights,
                 bool transposed, const TensorView& y) {
  for (size_t h = 0; h < weights.size(); ++h) {
    const WeightMatrix& w = weights[h];
    const auto head = static_cast<int64_t>(h);
    const int64_t outputs = transposed ? w.cols : w.rows;
    for (int64_t r = 0; r < x.rows(); ++r) {
      std::fill_n(y.row<double>(r) + head * y.shape[2], outputs, 0.0);
    }
    std::vector<double> row(static_cast<size_t>(w.cols));
    for (int64_t n = 0; n < w.rows; ++n) {
      decode_row(w, n, row.data());
      for (int64_t r = 0; r < x.rows(); ++r) {
        const double* in = x.row<double>(r) + head * x.shape[2];
        double* out = y.row<double>(r) + head * y.shape[2];
        for (int64_t k = 0; k < w.cols; ++k) {
          const double weight = row[static_cast<size_t>(k)];
          (transposed ? out[k] : out[n]) += weight * (transposed ? in[n] : in[k]);
        }
      }
    }
  }
}

// Cache rows of the shard that a row sees, ascending.
std::vector<int64_t> visible_rows(const LatentAttentionArgs& args, const RowCacheSegment& segment,
                                  int32_t t) {
  const int64_t row = segment.rows.first_row + t;
  const CacheShard& shard = segment.cache.shard;
  const int32_t count =
      args.selection.is_empty() ? kEveryKey : *args.selection.counts.row<int32_t>(row);
  std::vector<int64_t> rows;
  if (count == kEveryKey) {
    rows.resize(static_cast<size_t>(shard.tokens_below(segment.rows.first_position.value + t + 1)));
    std::iota(rows.begin(), rows.end(), 0);
    return rows;
  }
  for (int32_t i = 0; i < count; ++i) {
    const int64_t position = args.selection.positions.row<int32_t>(row)[i];
    if (shard.holds(position)) rows.push_back(shard.tokens_below(position));
  }
  return rows;
}

double attend_head(const double* q, const RowCacheView& cache, const std::vector<int64_t>& rows,
                   double scale, int rank, double* out) {
  std::fill_n(out, rank, 0.0);
  if (rows.empty()) return -std::numeric_limits<double>::infinity();
  std::vector<double> scores;
  for (const int64_t r : rows) {
    const auto* key = reinterpret_cast<const double*>(cache.row(r));
    scores.push_back(std::inner_product(q, q + cache.layout.width, key, 0.0) * scale);
  }
  const double highest = *std::max_element(scores.begin(), scores.end());
  double sum = 0;
  for (const double score : scores) sum += std::exp(score - highest);
  for (size_t i = 0; i < rows.size(); ++i) {
    const auto* value = reinterpret_cast<const double*>(cache.row(rows[i]));
    const double p = std::exp(scores[i] - highest) / sum;
    for (int c = 0; c < rank; ++c) out[c] += p * value[c];
  }
  return highest + std::log(sum);
}

void attend(Stream& stream, const LatentAttentionArgs& args) {
  const int64_t heads = args.q.shape[1];
  for (const RowCacheSegment& segment : args.segments) {
    MOTLEY_CHECK(segment.cache.layout.dtype == DType::kF64,
                 "the reference keeps its cache in float64");
    stream.threads().parallel_for(
        segment.rows.rows, 1, [&](int /*worker*/, int64_t begin, int64_t end) {
          for (int64_t t = begin; t < end; ++t) {
            const int64_t row = segment.rows.first_row + t;
            const auto rows = visible_rows(args, segment, static_cast<int32_t>(t));
            for (int64_t h = 0; h < heads; ++h) {
              args.result.lse.values.row<double>(row)[h] = attend_head(
                  args.q.row<double>(row) + h * args.q.shape[2], segment.cache, rows,
                  double{args.scale}, args.rank, args.result.out.row<double>(row) + h * args.rank);
            }
          }
        });
  }
}

}  // namespace

LatentOps reference_latent_ops() {
  return {rotate, row_write, head_linear, attend};
}

}  // namespace motley
