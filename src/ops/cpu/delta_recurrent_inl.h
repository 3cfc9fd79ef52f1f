// Kernel of the gated delta rule, token by token. Included after norm_inl.h.
//
// A task owns a strip of the state, [key_dim, kDeltaColumns], small enough for the first-level
// cache, and takes all its rows through it: the state crosses memory once per segment.
#pragma once

namespace motley {
namespace {

constexpr int kDeltaVectors = 2;
constexpr int kDeltaColumns = kDeltaVectors * kLanes;
// Rows of the state are summed in this many interleaved chains, which hide the latency of an fma;
// two where there are only 16 registers.
constexpr int kDeltaChains = kTilePairs;

inline int64_t padded_key_dim(int64_t key_dim) {
  const int64_t unit = kLanes > kDeltaChains ? kLanes : kDeltaChains;
  return (key_dim + unit - 1) / unit * unit;
}

float l2_scale(const float* x, int64_t dim, float scale) {
  return scale / __builtin_sqrtf(sum_of_squares(x, dim) + 1e-6f);
}

void delta_gates(const float* b, const float* a, const float* a_log, const float* dt_bias,
                 int64_t heads, float* beta, float* log_decay) {
  for (int64_t i = 0; i < heads; i += kLanes) {
    const int64_t n = heads - i;
    store_upto(beta + i, sigmoid_vec(load_upto(b + i, n)), n);
    const Vec step = softplus_vec(add(load_upto(a + i, n), load_upto(dt_bias + i, n)));
    const Vec rate = exp_vec(load_upto(a_log + i, n));
    store_upto(log_decay + i, sub(zero(), mul(rate, step)), n);
  }
}

// y = x * factor, zeros up to padded.
void scale_padded(const float* x, float factor, int64_t n, int64_t padded, float* y) {
  const Vec f = set1(factor);
  for (int64_t i = 0; i < padded; i += kLanes) store(y + i, mul(load_upto(x + i, n - i), f));
}

int64_t delta_recurrent_scratch(int64_t key_dim) {
  return padded_key_dim(key_dim) * (kDeltaColumns + 3);
}

using StripSums = Vec[kDeltaChains][kDeltaVectors];

inline void clear_sums(StripSums& sums) {
  for (auto& chain : sums) {
    for (Vec& sum : chain) sum = zero();
  }
}

inline Vec chain_total(const StripSums& sums, int v) {
  Vec total = add(sums[0][v], sums[1][v]);
  for (int r = 2; r < kDeltaChains; r += 2) total = add(total, add(sums[r][v], sums[r + 1][v]));
  return total;
}

// read = S^T k.
inline void delta_read(const float* state, const float* k, int64_t key_rows, Vec* read) {
  StripSums sums;
  clear_sums(sums);
  for (int64_t i = 0; i < key_rows; i += kDeltaChains) {
    for (int r = 0; r < kDeltaChains; ++r) {
      const Vec key = set1(k[i + r]);
      for (int v = 0; v < kDeltaVectors; ++v) {
        sums[r][v] = fma(load(state + (i + r) * kDeltaColumns + v * kLanes), key, sums[r][v]);
      }
    }
  }
  for (int v = 0; v < kDeltaVectors; ++v) read[v] = chain_total(sums, v);
}

struct DeltaToken {
  const float* k;  // [key_rows], normalised
  const float* q;  // [key_rows], normalised and scaled
  float decay;
  float beta;
};

// One token through the strip, given read = S^T k: d = beta (v - decay read);
// S <- decay S + k d^T; values = S^T q. delta_replay repeats the second. With kHasNext also read =
// S^T next_k, the same bits as delta_read would give, without another pass over the state.
template <bool kHasNext>
inline void delta_step(float* state, const DeltaToken& token, const float* next_k, int64_t key_rows,
                       Vec* read, Vec* d, Vec* values) {
  const Vec factor = set1(token.decay);
  for (int v = 0; v < kDeltaVectors; ++v) {
    d[v] = mul(set1(token.beta), sub(values[v], mul(factor, read[v])));
  }
  StripSums out;
  StripSums next;
  clear_sums(out);
  clear_sums(next);
  for (int64_t i = 0; i < key_rows; i += kDeltaChains) {
    for (int r = 0; r < kDeltaChains; ++r) {
      const Vec key = set1(token.k[i + r]);
      const Vec query = set1(token.q[i + r]);
      for (int v = 0; v < kDeltaVectors; ++v) {
        float* cell = state + (i + r) * kDeltaColumns + v * kLanes;
        const Vec updated = fma(key, d[v], mul(load(cell), factor));
        store(cell, updated);
        out[r][v] = fma(updated, query, out[r][v]);
        if constexpr (kHasNext) next[r][v] = fma(updated, set1(next_k[i + r]), next[r][v]);
      }
    }
  }
  for (int v = 0; v < kDeltaVectors; ++v) {
    values[v] = chain_total(out, v);
    if constexpr (kHasNext) read[v] = chain_total(next, v);
  }
}

void delta_replay(const DeltaReplayTask& task) {
  for (int64_t i = 0; i < task.key_dim; ++i) {
    for (int v = 0; v < kDeltaVectors; ++v) {
      const int64_t n = task.columns - v * kLanes;
      if (n <= 0) break;
      float* cell = task.state + i * task.state_stride + v * kLanes;
      Vec state = load_upto(cell, n);
      for (int64_t t = 0; t < task.rows; ++t) {
        const Vec factor = set1(task.factors[t * task.factors_stride + i * task.factors_step]);
        const Vec d = load_upto(task.updates + t * task.updates_stride + v * kLanes, n);
        state = fma(set1(task.keys[t * task.keys_stride + i]), d, mul(state, factor));
      }
      store_upto(cell, state, n);
    }
  }
}

// Row t of [rows, columns].
inline void store_strip_row(const Vec* values, int64_t columns, float* to) {
  for (int v = 0; v < kDeltaVectors; ++v)
    store_upto(to + v * kLanes, values[v], columns - v * kLanes);
}

void delta_recurrent(const DeltaRecurrentTask& task) {
  const int64_t key_rows = padded_key_dim(task.key_dim);
  float* state = task.scratch;
  float* keys[2] = {state + key_rows * kDeltaColumns, state + key_rows * (kDeltaColumns + 1)};
  float* q = state + key_rows * (kDeltaColumns + 2);
  const auto normalise_key = [&task, &keys, key_rows](int64_t t) {
    scale_padded(task.k + t * task.qkv_stride, task.k_scale[t * task.scale_stride], task.key_dim,
                 key_rows, keys[t % 2]);
  };
  constexpr int64_t kLineFloats = 16;
  for (int64_t i = 0; task.next_state != nullptr && i < task.key_dim; ++i) {
    for (int64_t column = 0; column < kDeltaColumns; column += kLineFloats) {
      __builtin_prefetch(task.next_state + i * task.state_stride + column);
    }
  }
  for (int64_t i = 0; i < key_rows; ++i) {
    for (int v = 0; v < kDeltaVectors; ++v) {
      const int64_t n = i < task.key_dim ? task.columns - v * kLanes : 0;
      store(state + i * kDeltaColumns + v * kLanes,
            load_upto(task.state + i * task.state_stride + v * kLanes, n));
    }
  }
  Vec read[kDeltaVectors];
  normalise_key(0);
  delta_read(state, keys[0], key_rows, read);
  for (int64_t t = 0; t < task.rows; ++t) {
    scale_padded(task.q + t * task.qkv_stride, task.q_scale[t * task.scale_stride], task.key_dim,
                 key_rows, q);
    Vec values[kDeltaVectors];
    Vec d[kDeltaVectors];
    for (int v = 0; v < kDeltaVectors; ++v) {
      values[v] = load_upto(task.v + t * task.qkv_stride + v * kLanes, task.columns - v * kLanes);
    }
    const DeltaToken token{keys[t % 2], q, task.decay[t * task.gate_stride],
                           task.beta[t * task.gate_stride]};
    if (t + 1 < task.rows) {
      normalise_key(t + 1);
      delta_step<true>(state, token, keys[(t + 1) % 2], key_rows, read, d, values);
    } else {
      delta_step<false>(state, token, nullptr, key_rows, read, d, values);
    }
    store_strip_row(values, task.columns, task.out + t * task.out_stride);
    if (task.updates != nullptr) {
      store_strip_row(d, task.columns, task.updates + t * task.updates_stride);
    }
  }
  if (task.updates != nullptr) return;
  for (int64_t i = 0; i < task.key_dim; ++i) {
    for (int v = 0; v < kDeltaVectors; ++v) {
      store_upto(task.state + i * task.state_stride + v * kLanes,
                 load(state + i * kDeltaColumns + v * kLanes), task.columns - v * kLanes);
    }
  }
}

}  // namespace
}  // namespace motley
