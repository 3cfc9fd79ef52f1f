#include <algorithm>
#include <cmath>
#include <limits>
#include <vector>

#include "ops/reference/reference_ops.h"

namespace motley {
namespace {

void rotate(const RotaryParams& rotary, int64_t position, double* head) {
  const int half = rotary.rotary_dim / 2;
  for (int i = 0; i < half; ++i) {
    const double angle =
        static_cast<double>(position) * std::pow(rotary.theta, -2.0 * i / rotary.rotary_dim);
    const double first = head[i];
    const double second = head[i + half];
    head[i] = first * std::cos(angle) - second * std::sin(angle);
    head[i + half] = second * std::cos(angle) + first * std::sin(angle);
  }
}

void head_norm_rotary(Stream&, const HeadNormRotaryArgs& args) {
  const int64_t heads = args.x.shape[1];
  const int64_t stride = args.x.shape[2];
  const int64_t dim = args.y.shape[2];
  const float* weight = args.weight.as<float>();
  for (const RowSegment& segment : args.segments) {
    for (int32_t t = 0; t < segment.rows; ++t) {
      for (int64_t h = 0; h < heads; ++h) {
        const double* x = args.x.row<double>(segment.first_row + t) + h * stride;
        double* y = args.y.row<double>(segment.first_row + t) + h * dim;
        double sum = 0;
        for (int64_t i = 0; i < dim; ++i) sum += x[i] * x[i];
        const double scale = 1.0 / std::sqrt(sum / static_cast<double>(dim) + args.epsilon);
        for (int64_t i = 0; i < dim; ++i) {
          y[i] = x[i] * scale * (double{weight[i]} + double{args.weight_offset});
        }
        rotate(args.rotary, segment.first_position.value + t, y);
      }
    }
  }
}

// Key or value vector of token `token` of the shard.
double* cached(const CacheView& cache, int head, int64_t token, bool is_value) {
  MOTLEY_CHECK(cache.layout.dtype == DType::kF64, "the reference keeps its cache in float64");
  const auto page = static_cast<size_t>(token / cache.layout.tokens_per_page);
  const int slot = static_cast<int>(token % cache.layout.tokens_per_page);
  const int64_t offset =
      is_value ? cache.layout.value_offset(head, slot) : cache.layout.key_offset(head, slot);
  return reinterpret_cast<double*>(cache.pages[page]) + offset;
}

void cache_write(Stream&, const ConstTensorView& k, const ConstTensorView& v,
                 std::span<const AttentionSegment> segments) {
  const int64_t kv_heads = k.shape[1];
  const int64_t dim = k.shape[2];
  for (const AttentionSegment& segment : segments) {
    const CacheView& cache = segment.cache;
    for (int32_t t = 0; t < segment.rows.rows; ++t) {
      const int64_t position = segment.rows.first_position.value + t;
      if (!cache.shard.holds(position)) continue;
      const int64_t token = cache.shard.tokens_below(position);
      const int64_t row = segment.rows.first_row + t;
      for (int64_t h = 0; h < kv_heads; ++h) {
        const int head = static_cast<int>(h);
        std::copy_n(k.row<double>(row) + h * dim, dim, cached(cache, head, token, false));
        std::copy_n(v.row<double>(row) + h * dim, dim, cached(cache, head, token, true));
      }
    }
  }
}

// One query against the first `tokens` tokens of the shard; returns the log-sum-exp.
double attend_head(const double* q, int64_t dim, double scale, const CacheView& cache, int kv_head,
                   int64_t tokens, double* out) {
  std::fill_n(out, dim, 0.0);
  if (tokens == 0) return -std::numeric_limits<double>::infinity();
  std::vector<double> scores(static_cast<size_t>(tokens));
  for (int64_t t = 0; t < tokens; ++t) {
    const double* key = cached(cache, kv_head, t, false);
    double dot = 0;
    for (int64_t i = 0; i < dim; ++i) dot += q[i] * key[i];
    scores[static_cast<size_t>(t)] = dot * scale;
  }
  const double highest = *std::max_element(scores.begin(), scores.end());
  double sum = 0;
  for (const double score : scores) sum += std::exp(score - highest);
  for (int64_t t = 0; t < tokens; ++t) {
    const double* value = cached(cache, kv_head, t, true);
    const double p = std::exp(scores[static_cast<size_t>(t)] - highest) / sum;
    for (int64_t i = 0; i < dim; ++i) out[i] += p * value[i];
  }
  return highest + std::log(sum);
}

void attend(Stream&, const AttentionArgs& args) {
  const int64_t heads = args.q.shape[1];
  const int64_t dim = args.q.shape[2];
  for (const AttentionSegment& segment : args.segments) {
    for (int32_t t = 0; t < segment.rows.rows; ++t) {
      const int64_t row = segment.rows.first_row + t;
      const int64_t visible =
          segment.cache.shard.tokens_below(segment.rows.first_position.value + t + 1);
      for (int64_t h = 0; h < heads; ++h) {
        args.result.lse.values.row<double>(row)[h] =
            attend_head(args.q.row<double>(row) + h * dim, dim, double{args.scale}, segment.cache,
                        static_cast<int>(h / (heads / args.kv_heads)), visible,
                        args.result.out.row<double>(row) + h * dim);
      }
    }
  }
}

void merge(Stream&, std::span<const PartialAttention> parts, const PartialAttention& result) {
  const Shape& shape = result.out.shape;
  std::vector<double> merged(static_cast<size_t>(shape[2]));
  for (int64_t r = 0; r < shape[0]; ++r) {
    for (int64_t h = 0; h < shape[1]; ++h) {
      double highest = -std::numeric_limits<double>::infinity();
      for (const PartialAttention& part : parts) {
        highest = std::max(highest, part.lse.values.row<double>(r)[h]);
      }
      double sum = 0;
      std::fill(merged.begin(), merged.end(), 0.0);
      for (const PartialAttention& part : parts) {
        const double lse = part.lse.values.row<double>(r)[h];
        if (lse == -std::numeric_limits<double>::infinity()) continue;  // saw no key
        const double weight = std::exp(lse - highest);
        sum += weight;
        for (int64_t i = 0; i < shape[2]; ++i) {
          merged[static_cast<size_t>(i)] += weight * part.out.row<double>(r)[h * shape[2] + i];
        }
      }
      for (int64_t i = 0; i < shape[2]; ++i) {
        result.out.row<double>(r)[h * shape[2] + i] =
            sum > 0 ? merged[static_cast<size_t>(i)] / sum : 0.0;
      }
      result.lse.values.row<double>(r)[h] = sum > 0 ? highest + std::log(sum) : highest;
    }
  }
}

}  // namespace

AttentionOps reference_attention_ops() {
  return {head_norm_rotary, cache_write, attend, merge};
}

}  // namespace motley
