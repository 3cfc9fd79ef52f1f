// Kernels of ops/attention.h. Included after tile_inl.h.
//
// Online softmax page by page in order of position. A query's arithmetic is the same whatever other
// queries share the pages: scores and weighted values are chains per element (tile_inl.h), and a
// page that a query does not see leaves it untouched.
#pragma once

namespace motley {
namespace {

inline float infinity() {
  return __builtin_inff();
}

void rotate(const float* cosines, const float* sines, int64_t half, float* y) {
  for (int64_t i = 0; i < half; i += kLanes) {
    const int64_t n = half - i;
    const Vec c = load_upto(cosines + i, n);
    const Vec s = load_upto(sines + i, n);
    const Vec first = load_upto(y + i, n);
    const Vec second = load_upto(y + half + i, n);
    store_upto(y + i, sub(mul(first, c), mul(second, s)), n);
    store_upto(y + half + i, add(mul(second, c), mul(first, s)), n);
  }
}

void to_bf16(const float* x, int64_t n, uint16_t* y) {
  int64_t i = 0;
  for (; i + kLanes <= n; i += kLanes) store_bf16(y + i, load(x + i));
  if (i == n) return;
  uint16_t last[kLanes];
  store_bf16(last, load_upto(x + i, n - i));
  for (int64_t j = i; j < n; ++j) y[j] = last[j - i];
}

inline Vec load_bf16_upto(const uint16_t* p, int64_t n) {
  if (n >= kLanes) return load_bf16(p);
  uint16_t padded[kLanes] = {};
  for (int64_t i = 0; i < n; ++i) padded[i] = p[i];
  return load_bf16(padded);
}

void widen(const std::byte* rows, bool is_bf16, int64_t count, int64_t n, int64_t padded,
           float* y) {
  for (int64_t t = 0; t < count; ++t, y += padded) {
    if (is_bf16) {
      const uint16_t* from = reinterpret_cast<const uint16_t*>(rows) + t * n;
      for (int64_t i = 0; i < padded; i += kLanes) store(y + i, load_bf16_upto(from + i, n - i));
    } else {
      const float* from = reinterpret_cast<const float*>(rows) + t * n;
      for (int64_t i = 0; i < padded; i += kLanes) store(y + i, load_upto(from + i, n - i));
    }
  }
}

inline int64_t padded_tokens_of(int64_t tokens_per_page) {
  return (tokens_per_page + kLanes + kTileKeys - 1) / kLanes * kLanes;
}

// Scores of a page and a factor for every query; room for a page of keys and of values in float32.
int64_t attention_scratch(int64_t pairs, int64_t padded_dim, int64_t tokens_per_page) {
  const int64_t padded_tokens = padded_tokens_of(tokens_per_page);
  return pairs * (padded_tokens + 1) + 2 * padded_tokens * padded_dim;
}

// Rows of a page plane in float32, padded_dim apart; in place where they already are.
inline const float* plane(const AttentionTask& task, const std::byte* page, int64_t offset,
                          int64_t tokens, float* copy) {
  if (!task.is_bf16 && task.dim == task.padded_dim) {
    return reinterpret_cast<const float*>(page + offset);
  }
  widen(page + offset, task.is_bf16, tokens, task.dim, task.padded_dim, copy);
  return copy;
}

// Scores become e^(score - highest); returns the factor for what was summed before.
inline float soften(float* scores, int64_t visible, int64_t padded_tokens, float* highest,
                    float* sum) {
  for (int64_t j = visible; j < padded_tokens; ++j) scores[j] = -infinity();
  Vec best = set1(-infinity());
  for (int64_t j = 0; j < padded_tokens; j += kLanes) best = max(best, load(scores + j));
  const float page_highest = reduce_max(best);
  const float now = *highest < page_highest ? page_highest : *highest;
  float factor_lanes[kLanes];
  store(factor_lanes, exp_vec(set1(*highest - now)));
  Vec total = zero();
  for (int64_t j = 0; j < padded_tokens; j += kLanes) {
    const Vec p = exp_vec(sub(load(scores + j), set1(now)));
    store(scores + j, p);
    total = add(total, p);
  }
  *sum = *sum * factor_lanes[0] + reduce_add(total);
  *highest = now;
  return factor_lanes[0];
}

struct Page {
  const float* keys;
  const float* values;
  int64_t first;  // token of the shard
  int64_t tokens;
};

// Tokens of the page that a query sees.
inline int64_t visible_in(const Page& page, int64_t visible) {
  const int64_t n = visible - page.first;
  return n < 0 ? 0 : n < page.tokens ? n : page.tokens;
}

// scores[pair, j] = q . key j. A few keys at a time stay in the first-level cache for all queries.
inline void score_page(const AttentionTask& task, const Page& page, float* scores,
                       int64_t scores_stride) {
  constexpr int64_t kKeysAtOnce = 16;
  for (int64_t start = 0; start < page.tokens; start += kKeysAtOnce) {
    for (int64_t pair = 0; pair < task.pairs; pair += kTilePairs) {
      int64_t most = 0;
      for (int i = 0; i < kTilePairs; ++i) {
        const int64_t visible = visible_in(page, task.visible[pair + i]);
        most = visible > most ? visible : most;
      }
      const int64_t end = most < start + kKeysAtOnce ? most : start + kKeysAtOnce;
      for (int64_t j = start; j < end; j += kTileKeys) {
        dot_tile(task.q + pair * task.padded_dim, task.padded_dim, page.keys + j * task.padded_dim,
                 task.padded_dim, task.padded_dim, scores + pair * scores_stride + j,
                 scores_stride);
      }
    }
  }
}

// acc <- factor acc + sum over the visible tokens of p * value, by strips of columns that stay in
// the first-level cache for all queries.
inline void weigh_page(const AttentionTask& task, const Page& page, const float* p,
                       int64_t p_stride, const float* factors) {
  constexpr int64_t kStrip = 4 * kLanes;
  for (int64_t column = 0; column < task.value_dim; column += kStrip) {
    const int64_t rest = task.value_dim - column;
    const int64_t width = rest < kStrip ? rest : kStrip;
    for (int64_t pair = 0; pair < task.pairs; pair += kTilePairs) {
      int64_t visible[kTilePairs];
      for (int i = 0; i < kTilePairs; ++i) visible[i] = visible_in(page, task.visible[pair + i]);
      accumulate_ragged(p + pair * p_stride, p_stride, page.values + column, task.padded_dim,
                        visible, factors + pair, task.acc + pair * task.padded_dim + column,
                        task.padded_dim, width);
    }
  }
}

void attention(const AttentionTask& task) {
  for (int64_t pair = 0; pair < task.pairs; ++pair) {
    task.highest[pair] = -infinity();
    task.sum[pair] = 0.0f;
  }
  for (int64_t i = 0; i < task.pairs * task.padded_dim; i += kLanes) store(task.acc + i, zero());
  const int64_t padded_tokens = padded_tokens_of(task.tokens_per_page);
  float* key_copy = task.scratch;
  float* value_copy = key_copy + padded_tokens * task.padded_dim;
  float* scores = value_copy + padded_tokens * task.padded_dim;
  float* factors = scores + task.pairs * padded_tokens;
  for (int64_t first = task.begin; first < task.end; first += task.tokens_per_page) {
    const int64_t rest = task.end - first;
    const int64_t tokens = rest < task.tokens_per_page ? rest : task.tokens_per_page;
    const std::byte* data = task.pages[first / task.tokens_per_page];
    const float* keys = plane(task, data, task.key_bytes, tokens, key_copy);
    const float* values = task.value_bytes == task.key_bytes
                              ? keys
                              : plane(task, data, task.value_bytes, tokens, value_copy);
    const Page page{keys, values, first, tokens};
    score_page(task, page, scores, padded_tokens);
    for (int64_t pair = 0; pair < task.pairs; ++pair) {
      const int64_t visible = visible_in(page, task.visible[pair]);
      factors[pair] = visible == 0 ? 1.0f
                                   : soften(scores + pair * padded_tokens, visible, padded_tokens,
                                            task.highest + pair, task.sum + pair);
    }
    weigh_page(task, page, scores, padded_tokens, factors);
  }
}

void attention_join(const float* acc, float highest, float sum, int64_t dim, float* into_acc,
                    float* into_highest, float* into_sum) {
  if (sum == 0.0f) return;  // nothing was visible
  const float now = *into_highest < highest ? highest : *into_highest;
  const Vec keep = exp_vec(set1(*into_highest - now));
  const Vec bring = exp_vec(set1(highest - now));
  for (int64_t i = 0; i < dim; i += kLanes) {
    const Vec kept = mul(load_upto(into_acc + i, dim - i), keep);
    store_upto(into_acc + i, fma(load_upto(acc + i, dim - i), bring, kept), dim - i);
  }
  float lanes[2][kLanes];
  store(lanes[0], keep);
  store(lanes[1], bring);
  *into_sum = *into_sum * lanes[0][0] + sum * lanes[1][0];
  *into_highest = now;
}

void attention_finish(const float* acc, float highest, float sum, int64_t dim, float* out,
                      float* lse) {
  const bool is_empty = sum == 0.0f;
  const Vec scale = set1(is_empty ? 0.0f : 1.0f / sum);
  for (int64_t i = 0; i < dim; i += kLanes) {
    store_upto(out + i, mul(load_upto(acc + i, dim - i), scale), dim - i);
  }
  float lanes[kLanes];
  store(lanes, log_vec(set1(sum)));
  *lse = is_empty ? -infinity() : highest + lanes[0];
}

void attention_merge(const float* const* outs, const float* lses, int64_t parts, int64_t dim,
                     float* out, float* lse) {
  float highest = -infinity();
  for (int64_t part = 0; part < parts; ++part) {
    highest = highest < lses[part] ? lses[part] : highest;
  }
  const bool is_empty = highest == -infinity();
  const float base = is_empty ? 0.0f : highest;
  float lanes[kLanes];
  float sum = 0.0f;
  for (int64_t part = 0; part < parts; ++part) {
    store(lanes, exp_vec(set1(lses[part] - base)));
    sum += lanes[0];
  }
  const Vec scale = set1(is_empty ? 0.0f : 1.0f / sum);
  for (int64_t i = 0; i < dim; i += kLanes) {
    Vec total = zero();
    for (int64_t part = 0; part < parts; ++part) {
      const Vec weight = exp_vec(set1(lses[part] - base));
      total = fma(weight, load_upto(outs[part] + i, dim - i), total);
    }
    store_upto(out + i, mul(total, scale), dim - i);
  }
  store(lanes, log_vec(set1(sum)));
  *lse = is_empty ? -infinity() : highest + lanes[0];
}

}  // namespace
}  // namespace motley
