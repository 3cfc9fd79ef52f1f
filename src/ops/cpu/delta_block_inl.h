// Kernel of the chunked (WY) form of the gated delta rule. Included after delta_recurrent_inl.h and
// tile_inl.h.
//
// Per value head and block with the state S at its start, G the inclusive sums of log decay and
// D_ij = e^(G_i - G_j):
//   d_i = beta_i (v_i - e^(G_i) S^T k_i - sum_{j<i} D_ij (k_i . k_j) d_j)
//   o_i = e^(G_i) S^T q_i + sum_{j<=i} D_ij (q_i . k_j) d_j
//   S  <- e^(G_last) S + sum_j e^(G_last - G_j) k_j d_j^T   at the end of the block
// Each element is one chain in fixed order, so that the rows of a block may come in any pieces.
#pragma once

namespace motley {
namespace {

constexpr int64_t kBlock = 64;  // kDeltaBlock of ops/gated_delta.h
// Rows with room for a last tile that is not full; the rows past the end are zero.
constexpr int64_t kSlots = kBlock + kTilePairs;
// Stride of a square of dots: whole vectors, and room for a last tile.
constexpr int64_t kDots = kBlock + 2 * kLanes;

struct BlockScratch {
  int64_t key_width;     // padded key_dim
  int64_t value_width;   // padded value_dim
  float* keys;           // [kSlots, key_width], normalised
  float* queries;        // [kSlots, key_width], of the new rows
  float* faded_keys;     // [kSlots, key_width]: keys times e^(G_last - G_j)
  float* key_dots;       // [kSlots, kDots]: new row i, block row j
  float* query_dots;     // [kSlots, kDots]
  float* key_weights;    // [kSlots, kDots]: dots times decay, one head
  float* query_weights;  // [kSlots, kDots]
  float* spans;          // [kDots]: G_i - G_j of one head and the newest row i
  float* factors;        // [kDots]: e^G of the new rows; the last row's is at kDots - 1
  float* state;          // [key_width, value_width] of one head
  float* updates;        // [kSlots, value_width]
  float* out;            // [kSlots, value_width]
};

// Lays the arrays out from `base`; returns the floats they take.
inline int64_t lay_out(int64_t key_dim, int64_t value_dim, float* base, BlockScratch* s) {
  s->key_width = padded_key_dim(key_dim);
  s->value_width = round_up_to_lanes(value_dim);
  int64_t used = 0;
  const auto take = [&used, base](int64_t count) {
    float* result = base == nullptr ? nullptr : base + used;
    used += count;
    return result;
  };
  s->keys = take(kSlots * s->key_width);
  s->queries = take(kSlots * s->key_width);
  s->faded_keys = take(kSlots * s->key_width);
  s->key_dots = take(kSlots * kDots);
  s->query_dots = take(kSlots * kDots);
  s->key_weights = take(kSlots * kDots);
  s->query_weights = take(kSlots * kDots);
  s->spans = take(kDots);
  s->factors = take(kDots);
  s->state = take(s->key_width * s->value_width);
  s->updates = take(kSlots * s->value_width);
  s->out = take(kSlots * s->value_width);
  return used;
}

int64_t delta_block_scratch(int64_t key_dim, int64_t value_dim) {
  BlockScratch unused;
  return lay_out(key_dim, value_dim, nullptr, &unused);
}

inline void fill_zero(float* to, int64_t count) {
  for (int64_t i = 0; i < count; i += kLanes) store(to + i, zero());
}
inline void copy_in(const float* from, int64_t n, int64_t padded, float* to) {
  for (int64_t i = 0; i < padded; i += kLanes) store(to + i, load_upto(from + i, n - i));
}
inline void copy_out(const float* from, int64_t n, float* to) {
  for (int64_t i = 0; i < n; i += kLanes) store_upto(to + i, load(from + i), n - i);
}

// Normalised keys of the block and queries of the new rows; new keys go to the carry too.
inline void gather_keys(const DeltaBlockTask& task, const BlockScratch& s) {
  const int64_t total = task.held + task.rows;
  for (int64_t j = 0; j < task.held; ++j) {
    copy_in(task.carry_keys + j * task.carry_keys_stride, task.key_dim, s.key_width,
            s.keys + j * s.key_width);
  }
  for (int64_t i = 0; i < task.rows; ++i) {
    float* key = s.keys + (task.held + i) * s.key_width;
    scale_padded(task.k + i * task.qkv_stride, task.k_scale[i * task.scale_stride], task.key_dim,
                 s.key_width, key);
    scale_padded(task.q + i * task.qkv_stride, task.q_scale[i * task.scale_stride], task.key_dim,
                 s.key_width, s.queries + i * s.key_width);
    copy_out(key, task.key_dim, task.carry_keys + (task.held + i) * task.carry_keys_stride);
  }
  fill_zero(s.keys + total * s.key_width, (kSlots - total) * s.key_width);
  fill_zero(s.queries + task.rows * s.key_width, kTilePairs * s.key_width);
}

// The dots of new rows with block rows, up to their own (and a little past it, not used).
inline void block_dots(const DeltaBlockTask& task, const BlockScratch& s) {
  for (int64_t i = 0; i < task.rows; i += kTilePairs) {
    for (int64_t j = 0; j < task.held + i + kTilePairs && j < kBlock; j += kTileKeys) {
      const float* keys = s.keys + j * s.key_width;
      dot_tile(s.keys + (task.held + i) * s.key_width, s.key_width, keys, s.key_width, s.key_width,
               s.key_dots + i * kDots + j, kDots);
      dot_tile(s.queries + i * s.key_width, s.key_width, keys, s.key_width, s.key_width,
               s.query_dots + i * kDots + j, kDots);
    }
  }
}

// Factors e^G and the dots times e^(G_i - G_j), for head `head`. G_i - G_j is summed up from token
// j + 1 on, token by token, so that it is as exact as the decays themselves.
inline void block_decays(const DeltaBlockTask& task, const BlockScratch& s, int64_t head) {
  fill_zero(s.spans, kDots);
  fill_zero(s.factors, kDots);
  float from_start = 0.0f;
  for (int64_t row = 0; row < task.held + task.rows; ++row) {
    const int64_t i = row - task.held;
    float* kept = task.carry_decays + row * task.carry_decays_stride + head;
    if (i >= 0) *kept = task.log_decay[i * task.gate_stride + head];
    from_start += *kept;
    const Vec decay = set1(*kept);
    for (int64_t j = 0; j < row; j += kLanes) store(s.spans + j, add(load(s.spans + j), decay));
    s.spans[row] = 0.0f;
    if (i < 0) continue;
    s.factors[i] = from_start;
    for (int64_t j = 0; j <= row; j += kLanes) {
      const Vec fade = exp_vec(load(s.spans + j));
      const int64_t cell = i * kDots + j;
      store(s.key_weights + cell, mul(load(s.key_dots + cell), fade));
      store(s.query_weights + cell, mul(load(s.query_dots + cell), fade));
    }
  }
  s.factors[kDots - 1] = from_start;
  for (int64_t i = 0; i < kDots; i += kLanes) store(s.factors + i, exp_vec(load(s.factors + i)));
}

// The rows of U: forward substitution, kTilePairs rows at a time.
inline void block_updates(const DeltaBlockTask& task, const BlockScratch& s, int64_t head) {
  for (int64_t i = 0; i < task.rows; i += kTilePairs) {
    const int64_t first = task.held + i;
    float* rows = s.updates + first * s.value_width;
    fill_zero(rows, kTilePairs * s.value_width);
    accumulate_rows<kTilePairs>(s.keys + first * s.key_width, s.key_width, 1, s.state,
                                s.value_width, task.key_dim, nullptr, rows, s.value_width,
                                s.value_width);
    accumulate_rows<kTilePairs>(s.key_weights + i * kDots, kDots, 1, s.updates, s.value_width,
                                first, s.factors + i, rows, s.value_width, s.value_width);
    for (int64_t p = 0; p < kTilePairs && i + p < task.rows; ++p) {
      float* row = rows + p * s.value_width;
      accumulate_rows<1>(s.key_weights + (i + p) * kDots + first, 0, 1, rows, s.value_width, p,
                         nullptr, row, s.value_width, s.value_width);
      const float* v = task.v + (i + p) * task.qkv_stride + head * task.value_dim;
      const Vec beta = set1(task.beta[(i + p) * task.gate_stride + head]);
      for (int64_t c = 0; c < s.value_width; c += kLanes) {
        store(row + c, mul(beta, sub(load_upto(v + c, task.value_dim - c), load(row + c))));
      }
    }
  }
}

inline void block_out(const DeltaBlockTask& task, const BlockScratch& s, int64_t head) {
  fill_zero(s.out, (task.rows + kTilePairs) * s.value_width);
  for (int64_t i = 0; i < task.rows; i += kTilePairs) {
    float* rows = s.out + i * s.value_width;
    accumulate_rows<kTilePairs>(s.queries + i * s.key_width, s.key_width, 1, s.state, s.value_width,
                                task.key_dim, nullptr, rows, s.value_width, s.value_width);
    int64_t terms[kTilePairs];
    for (int64_t p = 0; p < kTilePairs; ++p) {
      terms[p] = task.held + (i + p < task.rows ? i + p : i) + 1;
    }
    accumulate_ragged(s.query_weights + i * kDots, kDots, s.updates, s.value_width, terms,
                      s.factors + i, rows, s.value_width, s.value_width);
  }
  for (int64_t i = 0; i < task.rows; ++i) {
    copy_out(s.out + i * s.value_width, task.value_dim,
             task.out + i * task.out_stride + head * task.value_dim);
  }
}

// S <- e^(G_last) S + sum_j e^(G_last - G_j) k_j d_j^T.
inline void fold_block(const DeltaBlockTask& task, const BlockScratch& s, float* state) {
  const int64_t total = task.held + task.rows;
  for (int64_t j = 0; j < total; ++j) {
    const Vec fade = exp_vec(set1(s.spans[j]));
    for (int64_t i = 0; i < s.key_width; i += kLanes) {
      store(s.faded_keys + j * s.key_width + i, mul(load(s.keys + j * s.key_width + i), fade));
    }
  }
  float scale[kTilePairs];
  for (float& factor : scale) factor = s.factors[kDots - 1];
  for (int64_t i = 0; i < s.key_width; i += kTilePairs) {
    accumulate_rows<kTilePairs>(s.faded_keys + i, 1, s.key_width, s.updates, s.value_width, total,
                                scale, s.state + i * s.value_width, s.value_width, s.value_width);
  }
  for (int64_t i = 0; i < task.key_dim; ++i) {
    copy_out(s.state + i * s.value_width, task.value_dim, state + i * task.value_dim);
  }
}

void delta_block(const DeltaBlockTask& task) {
  BlockScratch s;
  lay_out(task.key_dim, task.value_dim, task.scratch, &s);
  if (task.held + task.rows == 0) return;
  gather_keys(task, s);
  block_dots(task, s);
  for (int64_t head = 0; head < task.heads; ++head) {
    float* state = task.state + head * task.state_stride;
    for (int64_t i = 0; i < s.key_width; ++i) {
      copy_in(state + i * task.value_dim, i < task.key_dim ? task.value_dim : 0, s.value_width,
              s.state + i * s.value_width);
    }
    for (int64_t j = 0; j < task.held; ++j) {
      copy_in(task.carry_updates + j * task.carry_updates_stride + head * task.value_dim,
              task.value_dim, s.value_width, s.updates + j * s.value_width);
    }
    block_decays(task, s, head);
    block_updates(task, s, head);
    block_out(task, s, head);
    if (task.ends_block) {
      fold_block(task, s, state);
      continue;
    }
    for (int64_t j = task.held; j < task.held + task.rows; ++j) {
      copy_out(s.updates + j * s.value_width, task.value_dim,
               task.carry_updates + j * task.carry_updates_stride + head * task.value_dim);
    }
  }
}

}  // namespace
}  // namespace motley
