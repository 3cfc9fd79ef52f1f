// Kernels of the delta rule with a decay per key channel, token by token and in blocks. Included
// after delta_block_inl.h, whose layout of a block and chains of sums they share.
//
// Per head and block with the state S at its start, E the product of the factors e^g so far and
// f_j the key of token j faded by the factors of all tokens after it:
//   d_i = beta_i (v_i - S^T (E k_i) - sum_{j<i} (f_j . k_i) d_j)
//   o_i = S^T (E q_i) + sum_{j<=i} (f_j . q_i) d_j
//   S  <- diag(E) S + sum_j f_j d_j^T   at the end of the block
// Every factor is at most 1, so nothing overflows however strong the decay.
#pragma once

namespace motley {
namespace {

// Decay factors of one head's channels: bounded (lower_bound < 0) or softplus (0).
void channel_decay(const float* a, const float* dt_bias, float a_log, float lower_bound, int64_t n,
                   float* factor) {
  const Vec rate = exp_vec(set1(a_log));
  const Vec bound = set1(lower_bound);
  for (int64_t i = 0; i < n; i += kLanes) {
    const Vec x = add(load_upto(a + i, n - i), load_upto(dt_bias + i, n - i));
    const Vec g = lower_bound < 0.0f ? mul(bound, sigmoid_vec(mul(rate, x)))
                                     : sub(zero(), mul(rate, softplus_vec(x)));
    store_upto(factor + i, exp_vec(g), n - i);
  }
}

int64_t channel_recurrent_scratch(int64_t key_dim) {
  return padded_key_dim(key_dim) * (kDeltaColumns + 6);
}

struct ChannelToken {
  const float* k;       // [key_rows], normalised
  const float* q;       // [key_rows], normalised and scaled
  const float* factor;  // [key_rows]
  float beta;
};

// One token through the strip, given read = S^T (factor k): d = beta (v - read);
// S <- factor S + k d^T; values = S^T q. With kHasNext also read = S^T next_k, where next_k has
// the next token's factors in it.
template <bool kHasNext>
inline void channel_step(float* state, const ChannelToken& token, const float* next_k,
                         int64_t key_rows, Vec* read, Vec* d, Vec* values) {
  for (int v = 0; v < kDeltaVectors; ++v) d[v] = mul(set1(token.beta), sub(values[v], read[v]));
  StripSums out;
  StripSums next;
  clear_sums(out);
  clear_sums(next);
  for (int64_t i = 0; i < key_rows; i += kDeltaChains) {
    for (int r = 0; r < kDeltaChains; ++r) {
      const Vec key = set1(token.k[i + r]);
      const Vec query = set1(token.q[i + r]);
      const Vec factor = set1(token.factor[i + r]);
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

// Normalised key, factors, and their product, of token t.
struct ChannelKey {
  float* k;
  float* factor;
  float* faded;

  void fill(const ChannelRecurrentTask& task, int64_t t, int64_t key_rows) const {
    scale_padded(task.k + t * task.qkv_stride, task.k_scale[t * task.scale_stride], task.key_dim,
                 key_rows, k);
    scale_padded(task.factor + t * task.factor_stride, 1.0f, task.key_dim, key_rows, factor);
    for (int64_t i = 0; i < key_rows; i += kLanes) {
      store(faded + i, mul(load(k + i), load(factor + i)));
    }
  }
};

inline void move_strip(const float* from, int64_t from_stride, int64_t rows, int64_t columns,
                       float* to, int64_t to_stride) {
  for (int64_t i = 0; i < rows; ++i) {
    for (int64_t v = 0; v < kDeltaColumns; v += kLanes) {
      store_upto(to + i * to_stride + v, load_upto(from + i * from_stride + v, columns - v),
                 columns - v);
    }
  }
}

void channel_recurrent(const ChannelRecurrentTask& task) {
  const int64_t key_rows = padded_key_dim(task.key_dim);
  float* state = task.scratch;
  float* rest = state + key_rows * kDeltaColumns;
  const ChannelKey keys[2] = {{rest, rest + key_rows, rest + 2 * key_rows},
                              {rest + 3 * key_rows, rest + 4 * key_rows, rest + 2 * key_rows}};
  float* q = rest + 5 * key_rows;
  fill_zero(state, key_rows * kDeltaColumns);
  move_strip(task.state, task.state_stride, task.key_dim, task.columns, state, kDeltaColumns);
  Vec read[kDeltaVectors];
  keys[0].fill(task, 0, key_rows);
  delta_read(state, keys[0].faded, key_rows, read);
  for (int64_t t = 0; t < task.rows; ++t) {
    scale_padded(task.q + t * task.qkv_stride, task.q_scale[t * task.scale_stride], task.key_dim,
                 key_rows, q);
    Vec values[kDeltaVectors];
    Vec d[kDeltaVectors];
    for (int v = 0; v < kDeltaVectors; ++v) {
      values[v] = load_upto(task.v + t * task.qkv_stride + v * kLanes, task.columns - v * kLanes);
    }
    const ChannelToken token{keys[t % 2].k, q, keys[t % 2].factor, task.beta[t * task.beta_stride]};
    if (t + 1 < task.rows) {
      keys[(t + 1) % 2].fill(task, t + 1, key_rows);
      channel_step<true>(state, token, keys[(t + 1) % 2].faded, key_rows, read, d, values);
    } else {
      channel_step<false>(state, token, nullptr, key_rows, read, d, values);
    }
    store_strip_row(values, task.columns, task.out + t * task.out_stride);
    if (task.updates != nullptr) {
      store_strip_row(d, task.columns, task.updates + t * task.updates_stride);
    }
  }
  if (task.updates != nullptr) return;
  move_strip(state, kDeltaColumns, task.key_dim, task.columns, task.state, task.state_stride);
}

struct ChannelScratch {
  int64_t key_width;     // padded key_dim
  int64_t value_width;   // padded value_dim
  float* faded;          // [kSlots, key_width]
  float* keys;           // [kSlots, key_width]: E k of the new rows
  float* queries;        // [kSlots, key_width]: E q of the new rows
  float* token;          // [3, key_width]: k, q and factors of one row
  float* decay;          // [key_width]: E
  float* key_weights;    // [kSlots, kDots]: f_j . k_i, new row i, block row j
  float* query_weights;  // [kSlots, kDots]
  float* state;          // [key_width, value_width]
  float* updates;        // [kSlots, value_width]
  float* out;            // [kSlots, value_width]
};

inline int64_t lay_out(int64_t key_dim, int64_t value_dim, float* base, ChannelScratch* s) {
  s->key_width = padded_key_dim(key_dim);
  s->value_width = round_up_to_lanes(value_dim);
  int64_t used = 0;
  const auto take = [&used, base](int64_t count) {
    float* result = base == nullptr ? nullptr : base + used;
    used += count;
    return result;
  };
  s->faded = take(kSlots * s->key_width);
  s->keys = take(kSlots * s->key_width);
  s->queries = take(kSlots * s->key_width);
  s->token = take(3 * s->key_width);
  s->decay = take(s->key_width);
  s->key_weights = take(kSlots * kDots);
  s->query_weights = take(kSlots * kDots);
  s->state = take(s->key_width * s->value_width);
  s->updates = take(kSlots * s->value_width);
  s->out = take(kSlots * s->value_width);
  return used;
}

int64_t channel_block_scratch(int64_t key_dim, int64_t value_dim) {
  ChannelScratch unused;
  return lay_out(key_dim, value_dim, nullptr, &unused);
}

// Fades the keys of the block by new row i's factors and takes their dots with its key and query.
inline void channel_row(const ChannelBlockTask& task, const ChannelScratch& s, int64_t i) {
  float* k = s.token;
  float* q = k + s.key_width;
  float* factor = q + s.key_width;
  scale_padded(task.k + i * task.qkv_stride, task.k_scale[i * task.scale_stride], task.key_dim,
               s.key_width, k);
  scale_padded(task.q + i * task.qkv_stride, task.q_scale[i * task.scale_stride], task.key_dim,
               s.key_width, q);
  copy_in(task.factor + i * task.factor_stride, task.key_dim, s.key_width, factor);
  const int64_t row = task.held + i;
  for (int64_t c = 0; c < s.key_width; c += kLanes) {
    const Vec fade = load(factor + c);
    const Vec decay = row == 0 ? fade : mul(load(s.decay + c), fade);
    store(s.decay + c, decay);
    store(s.keys + i * s.key_width + c, mul(load(k + c), decay));
    store(s.queries + i * s.key_width + c, mul(load(q + c), decay));
    for (int64_t j = 0; j < row; ++j) {
      float* cell = s.faded + j * s.key_width + c;
      store(cell, mul(load(cell), fade));
    }
    store(s.faded + row * s.key_width + c, load(k + c));
  }
  for (int64_t j = 0; j <= row; j += kLanes) {
    Vec by_key[kLanes];
    Vec by_query[kLanes];
    for (int64_t p = 0; p < kLanes; ++p) {
      by_key[p] = zero();
      by_query[p] = zero();
      if (j + p > row) continue;
      const float* faded = s.faded + (j + p) * s.key_width;
      for (int64_t c = 0; c < s.key_width; c += kLanes) {
        by_key[p] = fma(load(faded + c), load(k + c), by_key[p]);
        by_query[p] = fma(load(faded + c), load(q + c), by_query[p]);
      }
    }
    store(s.key_weights + i * kDots + j, reduce_add_each(by_key));
    store(s.query_weights + i * kDots + j, reduce_add_each(by_query));
  }
}

// The rows of U: forward substitution, kTilePairs rows at a time.
inline void channel_updates(const ChannelBlockTask& task, const ChannelScratch& s) {
  for (int64_t i = 0; i < task.rows; i += kTilePairs) {
    const int64_t first = task.held + i;
    float* rows = s.updates + first * s.value_width;
    fill_zero(rows, kTilePairs * s.value_width);
    accumulate_rows<kTilePairs>(s.keys + i * s.key_width, s.key_width, 1, s.state, s.value_width,
                                task.key_dim, nullptr, rows, s.value_width, s.value_width);
    accumulate_rows<kTilePairs>(s.key_weights + i * kDots, kDots, 1, s.updates, s.value_width,
                                first, nullptr, rows, s.value_width, s.value_width);
    for (int64_t p = 0; p < kTilePairs && i + p < task.rows; ++p) {
      float* row = rows + p * s.value_width;
      accumulate_rows<1>(s.key_weights + (i + p) * kDots + first, 0, 1, rows, s.value_width, p,
                         nullptr, row, s.value_width, s.value_width);
      const float* v = task.v + (i + p) * task.qkv_stride;
      const Vec beta = set1(task.beta[(i + p) * task.beta_stride]);
      for (int64_t c = 0; c < s.value_width; c += kLanes) {
        store(row + c, mul(beta, sub(load_upto(v + c, task.value_dim - c), load(row + c))));
      }
    }
  }
}

inline void channel_out(const ChannelBlockTask& task, const ChannelScratch& s) {
  fill_zero(s.out, (task.rows + kTilePairs) * s.value_width);
  for (int64_t i = 0; i < task.rows; i += kTilePairs) {
    float* rows = s.out + i * s.value_width;
    accumulate_rows<kTilePairs>(s.queries + i * s.key_width, s.key_width, 1, s.state, s.value_width,
                                task.key_dim, nullptr, rows, s.value_width, s.value_width);
    int64_t terms[kTilePairs];
    for (int64_t p = 0; p < kTilePairs; ++p) {
      terms[p] = task.held + (i + p < task.rows ? i + p : i) + 1;
    }
    accumulate_ragged(s.query_weights + i * kDots, kDots, s.updates, s.value_width, terms, nullptr,
                      rows, s.value_width, s.value_width);
  }
  for (int64_t i = 0; i < task.rows; ++i) {
    copy_out(s.out + i * s.value_width, task.value_dim, task.out + i * task.out_stride);
  }
}

inline void channel_fold(const ChannelBlockTask& task, const ChannelScratch& s) {
  for (int64_t i = 0; i < s.key_width; i += kTilePairs) {
    accumulate_rows<kTilePairs>(s.faded + i, 1, s.key_width, s.updates, s.value_width,
                                task.held + task.rows, s.decay + i, s.state + i * s.value_width,
                                s.value_width, s.value_width);
  }
  for (int64_t i = 0; i < task.key_dim; ++i) {
    copy_out(s.state + i * s.value_width, task.value_dim, task.state + i * task.value_dim);
  }
}

void channel_block(const ChannelBlockTask& task) {
  ChannelScratch s;
  lay_out(task.key_dim, task.value_dim, task.scratch, &s);
  const int64_t total = task.held + task.rows;
  if (total == 0) return;
  for (int64_t i = 0; i < s.key_width; ++i) {
    copy_in(task.state + i * task.value_dim, i < task.key_dim ? task.value_dim : 0, s.value_width,
            s.state + i * s.value_width);
  }
  copy_in(task.carry_decay, task.key_dim, s.key_width, s.decay);
  for (int64_t j = 0; j < task.held; ++j) {
    copy_in(task.carry_keys + j * task.carry_keys_stride, task.key_dim, s.key_width,
            s.faded + j * s.key_width);
    copy_in(task.carry_updates + j * task.carry_updates_stride, task.value_dim, s.value_width,
            s.updates + j * s.value_width);
  }
  // Rows of a last tile that is not full are read and not used.
  fill_zero(s.keys + task.rows * s.key_width, kTilePairs * s.key_width);
  fill_zero(s.queries + task.rows * s.key_width, kTilePairs * s.key_width);
  fill_zero(s.key_weights + task.rows * kDots, kTilePairs * kDots);
  fill_zero(s.query_weights + task.rows * kDots, kTilePairs * kDots);
  for (int64_t i = 0; i < task.rows; ++i) channel_row(task, s, i);
  channel_updates(task, s);
  channel_out(task, s);
  if (task.ends_block) return channel_fold(task, s);
  copy_out(s.decay, task.key_dim, task.carry_decay);
  for (int64_t j = 0; j < total; ++j) {
    copy_out(s.faded + j * s.key_width, task.key_dim, task.carry_keys + j * task.carry_keys_stride);
    copy_out(s.updates + j * s.value_width, task.value_dim,
             task.carry_updates + j * task.carry_updates_stride);
  }
}

}  // namespace
}  // namespace motley
