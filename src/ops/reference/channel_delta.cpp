#include <algorithm>
#include <cmath>
#include <vector>

#include "ops/reference/reference_math.h"
#include "ops/reference/reference_ops.h"

namespace motley {
namespace {

constexpr double kNormEpsilon = 1e-6;

// x * (sum x^2 + epsilon)^-1/2 * scale.
std::vector<double> normalised(const double* x, int dim, double scale) {
  double sum = 0;
  for (int i = 0; i < dim; ++i) sum += x[i] * x[i];
  std::vector<double> result(x, x + dim);
  for (double& value : result) value *= scale / std::sqrt(sum + kNormEpsilon);
  return result;
}

// What one token brings to one head.
struct Token {
  std::vector<double> q;
  std::vector<double> k;
  std::vector<double> factor;  // e^g per key channel
  const double* v = nullptr;
  double beta = 0;
  double* out = nullptr;
};

double log_decay(const ChannelDeltaArgs& args, double a, double a_log) {
  const double rate = std::exp(a_log);
  if (args.gate == DecayGate::kSoftplus) return -rate * reference_softplus(a);
  return double{args.lower_bound} * reference_sigmoid(rate * a);
}

Token read_token(const ChannelDeltaArgs& args, int64_t row, int head) {
  const ChannelDeltaShape& shape = args.shape;
  const int64_t first = int64_t{head} * shape.key_head_dim;
  const double* qkv = args.qkv.row<double>(row);
  const double* a = args.decay.row<double>(row) + first;
  const float* bias = args.dt_bias.as<float>() + first;
  Token token;
  token.q = normalised(qkv + first, shape.key_head_dim, 1.0 / std::sqrt(shape.key_head_dim));
  token.k = normalised(qkv + shape.key_dim() + first, shape.key_head_dim, 1.0);
  for (int i = 0; i < shape.key_head_dim; ++i) {
    token.factor.push_back(
        std::exp(log_decay(args, a[i] + double{bias[i]}, double{args.a_log.as<float>()[head]})));
  }
  token.v = qkv + 2 * shape.key_dim() + int64_t{head} * shape.value_head_dim;
  token.beta = reference_sigmoid(args.beta.row<double>(row)[head]);
  token.out = args.out.row<double>(row) + int64_t{head} * shape.value_head_dim;
  return token;
}

// `update` [value_head_dim] takes d, or is null.
void step(const ChannelDeltaShape& shape, const Token& token, double* state, double* update) {
  const int dk = shape.key_head_dim;
  const int dv = shape.value_head_dim;
  for (int c = 0; c < dv; ++c) {
    double read = 0;
    for (int i = 0; i < dk; ++i) {
      state[i * dv + c] *= token.factor[static_cast<size_t>(i)];
      read += state[i * dv + c] * token.k[static_cast<size_t>(i)];
    }
    const double d = token.beta * (token.v[c] - read);
    if (update != nullptr) update[c] = d;
    double out = 0;
    for (int i = 0; i < dk; ++i) {
      state[i * dv + c] += token.k[static_cast<size_t>(i)] * d;
      out += state[i * dv + c] * token.q[static_cast<size_t>(i)];
    }
    token.out[c] = out;
  }
}

// Tentative rows of one head: a copy of the state goes through them, the ring remembers.
void run_tentative(const ChannelDeltaArgs& args, const ChannelDeltaSegment& segment, int head) {
  const ChannelDeltaShape& shape = args.shape;
  const double* state = segment.state.row<double>(head);
  std::vector<double> copy(state, state + int64_t{shape.key_head_dim} * shape.value_head_dim);
  const int64_t first_key = int64_t{head} * shape.key_head_dim;
  for (int32_t t = 0; t < segment.rows.rows; ++t) {
    const Token token = read_token(args, segment.rows.first_row + t, head);
    std::copy(token.k.begin(), token.k.end(), segment.ring.keys.row<double>(t) + first_key);
    std::copy(token.factor.begin(), token.factor.end(),
              segment.ring.factors.row<double>(t) + first_key);
    step(shape, token, copy.data(),
         segment.ring.updates.row<double>(t) + int64_t{head} * shape.value_head_dim);
  }
}

void recurrent(Stream&, const ChannelDeltaArgs& args) {
  for (const ChannelDeltaSegment& segment : args.segments) {
    for (int head = 0; head < args.shape.heads; ++head) {
      if (!segment.ring.is_empty()) {
        run_tentative(args, segment, head);
        continue;
      }
      for (int32_t t = 0; t < segment.rows.rows; ++t) {
        step(args.shape, read_token(args, segment.rows.first_row + t, head),
             segment.state.row<double>(head), nullptr);
      }
    }
  }
}

// What step() does to the state, with d known.
void commit(Stream&, const ChannelDeltaShape& shape, const ChannelDeltaSegment& segment) {
  const int dk = shape.key_head_dim;
  const int dv = shape.value_head_dim;
  for (int head = 0; head < shape.heads; ++head) {
    double* state = segment.state.row<double>(head);
    for (int32_t t = 0; t < segment.rows.rows; ++t) {
      const double* k = segment.ring.keys.row<double>(t) + int64_t{head} * dk;
      const double* factor = segment.ring.factors.row<double>(t) + int64_t{head} * dk;
      const double* d = segment.ring.updates.row<double>(t) + int64_t{head} * dv;
      for (int i = 0; i < dk * dv; ++i) state[i] *= factor[i / dv];
      for (int i = 0; i < dk * dv; ++i) state[i] += k[i / dv] * d[i % dv];
    }
  }
}

// The block's tokens so far, of one head; views into the carry.
struct Block {
  const ChannelDeltaShape& shape;
  const ChannelDeltaCarry& carry;
  int head = 0;

  double* key(int row) const {
    return carry.keys.row<double>(row) + int64_t{head} * shape.key_head_dim;
  }
  double* update(int row) const {
    return carry.updates.row<double>(row) + int64_t{head} * shape.value_head_dim;
  }
  double* decay() const { return carry.decay.row<double>(0) + int64_t{head} * shape.key_head_dim; }
};

// Row `row` of the block: all keys before it fade by its factors; then
//   d = beta (v - S^T (e^G k) - sum_{j < row} (faded k_j . k) d_j)
//   o = S^T (e^G q) + sum_{j <= row} (faded k_j . q) d_j
void block_row(const Block& block, const Token& token, const double* state, int row) {
  const int dk = block.shape.key_head_dim;
  const int dv = block.shape.value_head_dim;
  for (int i = 0; i < dk; ++i) {
    const double factor = token.factor[static_cast<size_t>(i)];
    block.decay()[i] = row == 0 ? factor : block.decay()[i] * factor;
    for (int j = 0; j < row; ++j) block.key(j)[i] *= factor;
    block.key(row)[i] = token.k[static_cast<size_t>(i)];
  }
  for (int c = 0; c < dv; ++c) {
    double read = 0;
    double out = 0;
    for (int i = 0; i < dk; ++i) {
      const double faded = block.decay()[i] * state[i * dv + c];
      read += faded * token.k[static_cast<size_t>(i)];
      out += faded * token.q[static_cast<size_t>(i)];
    }
    block.update(row)[c] = read;
    token.out[c] = out;
  }
  for (int j = 0; j <= row; ++j) {
    double by_key = 0;
    double by_query = 0;
    for (int i = 0; i < dk; ++i) {
      by_key += token.k[static_cast<size_t>(i)] * block.key(j)[i];
      by_query += token.q[static_cast<size_t>(i)] * block.key(j)[i];
    }
    for (int c = 0; c < dv; ++c) {
      if (j < row) {
        block.update(row)[c] += by_key * block.update(j)[c];
      } else {
        block.update(row)[c] = token.beta * (token.v[c] - block.update(row)[c]);
      }
      token.out[c] += by_query * block.update(j)[c];
    }
  }
}

// S <- diag(e^G) S + sum_j (faded k_j) d_j^T.
void fold(const Block& block, int rows, double* state) {
  if (rows == 0) return;
  const int dv = block.shape.value_head_dim;
  for (int i = 0; i < block.shape.key_head_dim; ++i) {
    for (int c = 0; c < dv; ++c) {
      double sum = block.decay()[i] * state[i * dv + c];
      for (int j = 0; j < rows; ++j) sum += block.key(j)[i] * block.update(j)[c];
      state[i * dv + c] = sum;
    }
  }
}

void chunked(Stream&, const ChannelDeltaArgs& args) {
  for (const ChannelDeltaSegment& segment : args.segments) {
    MOTLEY_CHECK(!segment.carry.is_empty(), "the chunked form needs a carry");
    int& held = *segment.carry.rows;
    for (int32_t t = 0; t < segment.rows.rows; ++t) {
      const int64_t position = segment.rows.first_position.value + t;
      const bool ends_block = (position + 1) % kDeltaBlock == 0;
      for (int head = 0; head < args.shape.heads; ++head) {
        const Block block{args.shape, segment.carry, head};
        const Token token = read_token(args, segment.rows.first_row + t, head);
        block_row(block, token, segment.state.row<double>(head), held);
        if (ends_block) fold(block, held + 1, segment.state.row<double>(head));
      }
      held = ends_block ? 0 : held + 1;
    }
  }
}

void flush_carry(Stream&, const ChannelDeltaShape& shape, const ChannelDeltaSegment& segment) {
  for (int head = 0; head < shape.heads; ++head) {
    fold({shape, segment.carry, head}, *segment.carry.rows, segment.state.row<double>(head));
  }
  *segment.carry.rows = 0;
}

}  // namespace

ChannelDeltaOps reference_channel_delta_ops() {
  return {recurrent, chunked, flush_carry, commit};
}

}  // namespace motley
