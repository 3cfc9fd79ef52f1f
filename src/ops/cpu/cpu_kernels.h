// The inner loops of the CPU ops: plain pointers in, one thread, no allocation.
//
// One table per instruction set, filled by kernels_<isa>.cpp from the same *_inl.h sources. The ops
// in ops/cpu/*_ops.cpp check views, share work among threads and provide scratch; they are compiled
// once. Kernel files must not use inline functions of shared headers (see simd_portable.h).
// Strides count elements. Sums run in an order fixed by the dimensions alone.
#pragma once

#include <cstddef>
#include <cstdint>

namespace motley {

// One block of channels of one segment. Rows t - kernel + 1 + j of the input; negative times are in
// the window.
struct ConvolutionTask {
  const float* u = nullptr;  // [rows, channels]
  int64_t u_stride = 0;
  const float* weight = nullptr;  // [channels, kernel]
  float* window = nullptr;        // [kernel - 1, channels], updated
  int64_t window_stride = 0;
  float* ring = nullptr;  // [rows, channels]: takes u, and the window stays; or null
  int64_t ring_stride = 0;
  float* y = nullptr;  // [rows, channels]
  int64_t y_stride = 0;
  int64_t rows = 0;
  int64_t channels = 0;
  int64_t kernel = 0;
  float* scratch = nullptr;             // convolution_scratch floats
  const float** row_scratch = nullptr;  // [rows + kernel - 1]
};

// Rows of one value head and some of its columns through the delta rule, token by token.
struct DeltaRecurrentTask {
  const float* q = nullptr;  // [rows, key_dim], not normalised
  const float* k = nullptr;  // [rows, key_dim], not normalised
  const float* v = nullptr;  // [rows, columns]
  int64_t qkv_stride = 0;
  const float* q_scale = nullptr;  // [rows]: normalisation and key_dim^-1/2
  const float* k_scale = nullptr;  // [rows]
  int64_t scale_stride = 0;
  const float* beta = nullptr;   // [rows], after the sigmoid
  const float* decay = nullptr;  // [rows], the factor e^g
  int64_t gate_stride = 0;
  float* state = nullptr;             // [key_dim, columns], updated
  const float* next_state = nullptr;  // of the task after this one, to be fetched ahead; or null
  int64_t state_stride = 0;
  float* out = nullptr;  // [rows, columns]
  int64_t out_stride = 0;
  float* updates = nullptr;  // [rows, columns]: takes d, and the state stays; or null
  int64_t updates_stride = 0;
  int64_t rows = 0;
  int64_t key_dim = 0;
  int64_t columns = 0;       // at most delta_columns
  float* scratch = nullptr;  // delta_recurrent_scratch floats
};

// What rows did to the state of one head, some of its columns, done again: per row
// S <- diag(factor) S + k d^T with the operations of the recurrent kernels.
struct DeltaReplayTask {
  const float* keys = nullptr;  // [rows, key_dim], normalised
  int64_t keys_stride = 0;
  const float* updates = nullptr;  // [rows, columns]
  int64_t updates_stride = 0;
  const float* factors = nullptr;  // of row t and key i: factors[t * stride + i * step]
  int64_t factors_stride = 0;
  int64_t factors_step = 0;  // 0: one factor for all keys
  float* state = nullptr;    // [key_dim, columns], updated
  int64_t state_stride = 0;
  int64_t rows = 0;
  int64_t key_dim = 0;
  int64_t columns = 0;  // at most delta_columns
};

// Rows within one block of 64 for one key head and its value heads, in the chunked form.
struct DeltaBlockTask {
  const float* q = nullptr;  // [rows, key_dim], not normalised
  const float* k = nullptr;  // [rows, key_dim], not normalised
  const float* v = nullptr;  // [rows, heads * value_dim]
  int64_t qkv_stride = 0;
  const float* q_scale = nullptr;  // [rows]
  const float* k_scale = nullptr;  // [rows]
  int64_t scale_stride = 0;
  const float* beta = nullptr;       // [rows, heads], after the sigmoid
  const float* log_decay = nullptr;  // [rows, heads]
  int64_t gate_stride = 0;
  float* state = nullptr;  // [heads, key_dim, value_dim], updated when the block ends
  int64_t state_stride = 0;
  float* carry_keys = nullptr;  // [64, key_dim]
  int64_t carry_keys_stride = 0;
  float* carry_updates = nullptr;  // [64, heads * value_dim]
  int64_t carry_updates_stride = 0;
  float* carry_decays = nullptr;  // [64, heads]: logarithms, token by token
  int64_t carry_decays_stride = 0;
  float* out = nullptr;  // [rows, heads * value_dim]
  int64_t out_stride = 0;
  int64_t held = 0;  // rows of the block already in the carry
  int64_t rows = 0;  // new rows; 0 only folds what is held
  bool ends_block = false;
  int64_t heads = 0;
  int64_t key_dim = 0;
  int64_t value_dim = 0;
  float* scratch = nullptr;  // delta_block_scratch floats
};

// Rows of one head and some of its columns through the delta rule with a decay per key channel,
// token by token.
struct ChannelRecurrentTask {
  const float* q = nullptr;  // [rows, key_dim], not normalised
  const float* k = nullptr;  // [rows, key_dim], not normalised
  const float* v = nullptr;  // [rows, columns]
  int64_t qkv_stride = 0;
  const float* q_scale = nullptr;  // [rows]: normalisation and key_dim^-1/2
  const float* k_scale = nullptr;  // [rows]
  int64_t scale_stride = 0;
  const float* beta = nullptr;  // [rows], after the sigmoid
  int64_t beta_stride = 0;
  const float* factor = nullptr;  // [rows, key_dim]: e^g
  int64_t factor_stride = 0;
  float* state = nullptr;  // [key_dim, columns], updated
  int64_t state_stride = 0;
  float* out = nullptr;  // [rows, columns]
  int64_t out_stride = 0;
  float* updates = nullptr;  // [rows, columns]: takes d, and the state stays; or null
  int64_t updates_stride = 0;
  int64_t rows = 0;
  int64_t key_dim = 0;
  int64_t columns = 0;       // at most delta_columns
  float* scratch = nullptr;  // channel_recurrent_scratch floats
};

// Rows within one block of 64 for one head, in the chunked form.
struct ChannelBlockTask {
  const float* q = nullptr;  // [rows, key_dim], not normalised
  const float* k = nullptr;  // [rows, key_dim], not normalised
  const float* v = nullptr;  // [rows, value_dim]
  int64_t qkv_stride = 0;
  const float* q_scale = nullptr;  // [rows]
  const float* k_scale = nullptr;  // [rows]
  int64_t scale_stride = 0;
  const float* beta = nullptr;  // [rows], after the sigmoid
  int64_t beta_stride = 0;
  const float* factor = nullptr;  // [rows, key_dim]: e^g
  int64_t factor_stride = 0;
  float* state = nullptr;       // [key_dim, value_dim], updated when the block ends
  float* carry_keys = nullptr;  // [64, key_dim], faded to the newest row held
  int64_t carry_keys_stride = 0;
  float* carry_updates = nullptr;  // [64, value_dim]
  int64_t carry_updates_stride = 0;
  float* carry_decay = nullptr;  // [key_dim]: factor from the block's start to the newest row held
  float* out = nullptr;          // [rows, value_dim]
  int64_t out_stride = 0;
  int64_t held = 0;  // rows of the block already in the carry
  int64_t rows = 0;  // new rows; 0 only folds what is held
  bool ends_block = false;
  int64_t key_dim = 0;
  int64_t value_dim = 0;
  float* scratch = nullptr;  // channel_block_scratch floats
};

// Queries of one key/value head against the tokens [begin, end) of a cache shard.
struct AttentionTask {
  const float* q = nullptr;          // [pairs, padded_dim], scaled, zero padded
  const int64_t* visible = nullptr;  // [pairs]: the first tokens of the shard that a query sees
  const std::byte* const* pages = nullptr;
  int64_t key_bytes = 0;    // offset of the head's keys in a page
  int64_t value_bytes = 0;  // and of its values
  bool is_bf16 = false;
  int64_t tokens_per_page = 0;
  int64_t begin = 0;
  int64_t end = 0;
  int64_t pairs = 0;  // a multiple of attention_pairs
  int64_t dim = 0;
  int64_t padded_dim = 0;    // a multiple of lanes
  int64_t value_dim = 0;     // columns of acc that are wanted, padded to lanes; at most padded_dim
  float* highest = nullptr;  // [pairs]: largest score, -infinity when nothing is visible
  float* sum = nullptr;      // [pairs]: sum of e^(score - highest)
  float* acc = nullptr;      // [pairs, padded_dim]: values weighted by e^(score - highest)
  float* scratch = nullptr;  // attention_scratch floats
};

// The heads of one query of an indexer against some keys.
struct IndexTask {
  const float* q = nullptr;        // [heads, padded_dim], zero padded
  const float* weights = nullptr;  // [heads]; 0 for heads that only fill up
  int64_t heads = 0;               // a multiple of attention_pairs
  const float* keys = nullptr;     // [count rounded up to index_keys, padded_dim], zero padded
  int64_t count = 0;
  int64_t padded_dim = 0;
  float* scores = nullptr;  // [count]
};

// One pool of index keys: pointers to its tokens' rows, in order.
struct IndexPoolTask {
  const float* const* keys = nullptr;   // [pool] rows of [dim]
  const float* const* gates = nullptr;  // [pool] rows of [dim]
  const float* ape = nullptr;           // [pool, dim]
  float* key = nullptr;                 // [dim]
  int64_t pool = 0;
  int64_t dim = 0;
};

struct CpuKernels {
  int64_t lanes = 1;
  int64_t delta_columns = 1;    // columns of the state that one recurrent task takes
  int64_t attention_pairs = 1;  // queries come in multiples of this
  int64_t index_keys = 1;       // keys of an indexer come in multiples of this

  // y = x * (mean(x^2) + epsilon)^-1/2 * (weight + offset).
  void (*rms_norm)(const float* x, const float* weight, int64_t dim, float epsilon, float offset,
                   float* y) = nullptr;
  void (*gated_rms_norm)(const float* x, const float* gate, const float* weight, int64_t dim,
                         float epsilon, float offset, float* y) = nullptr;
  void (*add)(const float* x, int64_t n, float* y) = nullptr;
  // y = silu(min(gate, limit)) * clamp(up, -limit, limit).
  void (*silu_multiply)(const float* gate, const float* up, int64_t n, float limit,
                        float* y) = nullptr;
  void (*sigmoid_multiply)(const float* gate, int64_t n, float* y) = nullptr;
  // y *= sigmoid(gate), one gate for all.
  void (*sigmoid_scale)(float gate, int64_t n, float* y) = nullptr;

  // Elementary functions, x and y [n]; y may be x.
  void (*exp)(const float* x, int64_t n, float* y) = nullptr;
  void (*log)(const float* x, int64_t n, float* y) = nullptr;
  void (*sigmoid)(const float* x, int64_t n, float* y) = nullptr;
  void (*silu)(const float* x, int64_t n, float* y) = nullptr;
  void (*softplus)(const float* x, int64_t n, float* y) = nullptr;

  int64_t (*convolution_scratch)(int64_t channels, int64_t kernel) = nullptr;
  void (*convolution)(const ConvolutionTask& task) = nullptr;

  // (sum x^2 + 1e-6)^-1/2 * scale.
  float (*l2_scale)(const float* x, int64_t dim, float scale) = nullptr;
  // beta = sigmoid(b); log_decay = -e^a_log softplus(a + dt_bias); [heads] each.
  void (*delta_gates)(const float* b, const float* a, const float* a_log, const float* dt_bias,
                      int64_t heads, float* beta, float* log_decay) = nullptr;
  int64_t (*delta_recurrent_scratch)(int64_t key_dim) = nullptr;
  void (*delta_recurrent)(const DeltaRecurrentTask& task) = nullptr;
  void (*delta_replay)(const DeltaReplayTask& task) = nullptr;
  int64_t (*delta_block_scratch)(int64_t key_dim, int64_t value_dim) = nullptr;
  void (*delta_block)(const DeltaBlockTask& task) = nullptr;

  // factor = e^g with g = lower_bound sigmoid(e^a_log (a + dt_bias)), or, when lower_bound is 0,
  // g = -e^a_log softplus(a + dt_bias); [n] channels of one head.
  void (*channel_decay)(const float* a, const float* dt_bias, float a_log, float lower_bound,
                        int64_t n, float* factor) = nullptr;
  int64_t (*channel_recurrent_scratch)(int64_t key_dim) = nullptr;
  void (*channel_recurrent)(const ChannelRecurrentTask& task) = nullptr;
  int64_t (*channel_block_scratch)(int64_t key_dim, int64_t value_dim) = nullptr;
  void (*channel_block)(const ChannelBlockTask& task) = nullptr;

  // y[t, o] = x[t] . weights[o]; x [rows, dim], weights [outputs, dim], y [rows, outputs].
  void (*hyper_dots)(const float* x, int64_t x_stride, int64_t rows, const float* weights,
                     int64_t outputs, int64_t dim, float* y) = nullptr;
  // streams[j] = post[j] y + sum over s of c[s, j] streams[s]; streams [n, hidden], n at most 8.
  void (*hyper_merge)(const float* y, const float* post, const float* c, int64_t n, int64_t hidden,
                      float* streams) = nullptr;
  float (*mean_square)(const float* x, int64_t dim) = nullptr;

  void (*index_pool)(const IndexPoolTask& task) = nullptr;

  // Pairs (i, i + half) of y turn by the angles whose cosines and sines are given, [half] each.
  void (*rotate)(const float* cosines, const float* sines, int64_t half, float* y) = nullptr;
  void (*to_bf16)(const float* x, int64_t n, uint16_t* y) = nullptr;
  // y = x * factor, then zeros up to padded.
  void (*scale_padded)(const float* x, float factor, int64_t n, int64_t padded, float* y) = nullptr;
  int64_t (*attention_scratch)(int64_t pairs, int64_t padded_dim,
                               int64_t tokens_per_page) = nullptr;
  void (*attention)(const AttentionTask& task) = nullptr;
  // Joins two sets of tokens seen by one query: (highest, sum, acc) <- both; acc [dim].
  void (*attention_join)(const float* acc, float highest, float sum, int64_t dim, float* into_acc,
                         float* into_highest, float* into_sum) = nullptr;
  // out = acc / sum, lse = highest + log(sum); out = 0 and lse = -infinity when sum is 0.
  void (*attention_finish)(const float* acc, float highest, float sum, int64_t dim, float* out,
                           float* lse) = nullptr;
  // Joins `parts` finished results in order; out may be outs[0] and lse may be &lses[0].
  void (*attention_merge)(const float* const* outs, const float* lses, int64_t parts, int64_t dim,
                          float* out, float* lse) = nullptr;

  // y = (x - mean) / sqrt(var + epsilon) * weight + bias; y may be x.
  void (*layer_norm)(const float* x, const float* weight, const float* bias, int64_t dim,
                     float epsilon, float* y) = nullptr;
  void (*index_scores)(const IndexTask& task) = nullptr;
  // Rows of a cache in float32, `padded` apart, zeros after the first n elements of each.
  void (*widen)(const std::byte* rows, bool is_bf16, int64_t count, int64_t n, int64_t padded,
                float* y) = nullptr;
  // c[p] = sum over j of a[p, j] b[j], in order; a [rows, terms], b [terms, width], width a
  // multiple of lanes.
  void (*weighted_rows)(const float* a, int64_t a_stride, int64_t rows, const float* b,
                        int64_t b_stride, int64_t terms, float* c, int64_t c_stride,
                        int64_t width) = nullptr;

  // y = sum over slots of weights[slot] * x[slot], in order, + shared when not null; [n].
  void (*combine)(const float* x, int64_t x_stride, const float* weights, int64_t slots,
                  const float* shared, int64_t n, float* y) = nullptr;
};

extern const CpuKernels kCpuKernelsPortable;
#if defined(__x86_64__)
extern const CpuKernels kCpuKernelsAvx2;
extern const CpuKernels kCpuKernelsAvx512;
#elif defined(__aarch64__)
extern const CpuKernels kCpuKernelsNeon;
#endif

}  // namespace motley
