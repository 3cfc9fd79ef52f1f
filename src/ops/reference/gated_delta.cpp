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

// What one token brings to one value head.
struct Token {
  std::vector<double> q;
  std::vector<double> k;
  const double* v = nullptr;
  double beta = 0;
  double decay = 0;  // log of the factor
  double* out = nullptr;
};

Token read_token(const GatedDeltaArgs& args, int64_t row, int head) {
  const GatedDeltaShape& shape = args.shape;
  const int key_head = head / (shape.value_heads / shape.key_heads);
  const double* qkv = args.qkv.row<double>(row);
  const double* q = qkv + int64_t{key_head} * shape.key_head_dim;
  Token token;
  token.q = normalised(q, shape.key_head_dim, 1.0 / std::sqrt(shape.key_head_dim));
  token.k = normalised(q + shape.key_dim(), shape.key_head_dim, 1.0);
  token.v = qkv + 2 * shape.key_dim() + int64_t{head} * shape.value_head_dim;
  token.beta = reference_sigmoid(args.beta.row<double>(row)[head]);
  token.decay = -std::exp(double{args.a_log.as<float>()[head]}) *
                reference_softplus(args.decay.row<double>(row)[head] +
                                   double{args.dt_bias.as<float>()[head]});
  token.out = args.out.row<double>(row) + int64_t{head} * shape.value_head_dim;
  return token;
}

double* state_of(const GatedDeltaSegment& segment, int head) {
  return segment.state.row<double>(head);
}

// `update` [value_head_dim] takes d, or is null.
void step(const GatedDeltaShape& shape, const Token& token, double* state, double* update) {
  const int dk = shape.key_head_dim;
  const int dv = shape.value_head_dim;
  const double factor = std::exp(token.decay);
  for (int i = 0; i < dk * dv; ++i) state[i] *= factor;
  for (int c = 0; c < dv; ++c) {
    double read = 0;
    for (int i = 0; i < dk; ++i) read += state[i * dv + c] * token.k[static_cast<size_t>(i)];
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
void run_tentative(const GatedDeltaArgs& args, const GatedDeltaSegment& segment, int head) {
  const GatedDeltaShape& shape = args.shape;
  const double* state = state_of(segment, head);
  std::vector<double> copy(state, state + int64_t{shape.key_head_dim} * shape.value_head_dim);
  const int64_t key_head = head / (shape.value_heads / shape.key_heads);
  for (int32_t t = 0; t < segment.rows.rows; ++t) {
    const Token token = read_token(args, segment.rows.first_row + t, head);
    std::copy(token.k.begin(), token.k.end(),
              segment.ring.keys.row<double>(t) + key_head * shape.key_head_dim);
    segment.ring.factors.row<double>(t)[head] = std::exp(token.decay);
    step(shape, token, copy.data(),
         segment.ring.updates.row<double>(t) + int64_t{head} * shape.value_head_dim);
  }
}

void recurrent(Stream&, const GatedDeltaArgs& args) {
  for (const GatedDeltaSegment& segment : args.segments) {
    for (int head = 0; head < args.shape.value_heads; ++head) {
      if (!segment.ring.is_empty()) {
        run_tentative(args, segment, head);
        continue;
      }
      for (int32_t t = 0; t < segment.rows.rows; ++t) {
        step(args.shape, read_token(args, segment.rows.first_row + t, head),
             state_of(segment, head), nullptr);
      }
    }
  }
}

// What step() does to the state, with d known.
void commit(Stream&, const GatedDeltaShape& shape, const GatedDeltaSegment& segment) {
  const int dk = shape.key_head_dim;
  const int dv = shape.value_head_dim;
  for (int head = 0; head < shape.value_heads; ++head) {
    const int64_t key_head = head / (shape.value_heads / shape.key_heads);
    double* state = state_of(segment, head);
    for (int32_t t = 0; t < segment.rows.rows; ++t) {
      const double* k = segment.ring.keys.row<double>(t) + key_head * dk;
      const double* d = segment.ring.updates.row<double>(t) + int64_t{head} * dv;
      const double factor = segment.ring.factors.row<double>(t)[head];
      for (int i = 0; i < dk * dv; ++i) state[i] *= factor;
      for (int i = 0; i < dk * dv; ++i) state[i] += k[i / dv] * d[i % dv];
    }
  }
}

// The block's tokens so far, of one value head; views into the carry.
struct Block {
  const GatedDeltaShape& shape;
  const DeltaCarry& carry;
  int head = 0;

  double* key(int row) const {
    const int key_head = head / (shape.value_heads / shape.key_heads);
    return carry.keys.row<double>(row) + int64_t{key_head} * shape.key_head_dim;
  }
  double* update(int row) const {
    return carry.updates.row<double>(row) + int64_t{head} * shape.value_head_dim;
  }
  double& decay(int row) const { return carry.decays.row<double>(row)[head]; }
};

double dot(const double* a, const double* b, int dim) {
  double sum = 0;
  for (int i = 0; i < dim; ++i) sum += a[i] * b[i];
  return sum;
}

// G_row - G_j: the decay from token j (after it) to token `row`. j = -1 is the block's start.
double decay_between(const Block& block, int j, int row) {
  double sum = 0;
  for (int i = j + 1; i <= row; ++i) sum += block.decay(i);
  return sum;
}

// Row `row` of the block: d by forward substitution in (I + A) U = diag(beta) (V - e^G K S), then
// the output e^G Q S + lower((Q K^T) o D) U.
void block_row(const Block& block, const Token& token, const double* state, int row) {
  const int dk = block.shape.key_head_dim;
  const int dv = block.shape.value_head_dim;
  for (int i = 0; i < dk; ++i) block.key(row)[i] = token.k[static_cast<size_t>(i)];
  block.decay(row) = token.decay;
  const double from_start = std::exp(decay_between(block, -1, row));
  for (int c = 0; c < dv; ++c) {
    double read = 0;
    double out = 0;
    for (int i = 0; i < dk; ++i) {
      read += from_start * state[i * dv + c] * token.k[static_cast<size_t>(i)];
      out += from_start * state[i * dv + c] * token.q[static_cast<size_t>(i)];
    }
    block.update(row)[c] = read;
    token.out[c] = out;
  }
  for (int j = 0; j <= row; ++j) {
    const double decayed = std::exp(decay_between(block, j, row));
    const double by_key = decayed * dot(token.k.data(), block.key(j), dk);
    const double by_query = decayed * dot(token.q.data(), block.key(j), dk);
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

// S <- e^(G_last) S + sum_j e^(G_last - G_j) k_j d_j^T.
void fold(const Block& block, int rows, double* state) {
  if (rows == 0) return;
  const int dk = block.shape.key_head_dim;
  const int dv = block.shape.value_head_dim;
  const double factor = std::exp(decay_between(block, -1, rows - 1));
  for (int i = 0; i < dk * dv; ++i) state[i] *= factor;
  for (int j = 0; j < rows; ++j) {
    const double decayed = std::exp(decay_between(block, j, rows - 1));
    for (int i = 0; i < dk; ++i) {
      for (int c = 0; c < dv; ++c) {
        state[i * dv + c] += decayed * block.key(j)[i] * block.update(j)[c];
      }
    }
  }
}

void chunked(Stream&, const GatedDeltaArgs& args) {
  for (const GatedDeltaSegment& segment : args.segments) {
    MOTLEY_CHECK(!segment.carry.is_empty(), "the chunked form needs a carry");
    int& held = *segment.carry.rows;
    for (int32_t t = 0; t < segment.rows.rows; ++t) {
      const int64_t position = segment.rows.first_position.value + t;
      const bool ends_block = (position + 1) % kDeltaBlock == 0;
      for (int head = 0; head < args.shape.value_heads; ++head) {
        const Block block{args.shape, segment.carry, head};
        const Token token = read_token(args, segment.rows.first_row + t, head);
        block_row(block, token, state_of(segment, head), held);
        if (ends_block) fold(block, held + 1, state_of(segment, head));
      }
      held = ends_block ? 0 : held + 1;
    }
  }
}

void flush_carry(Stream&, const GatedDeltaShape& shape, const GatedDeltaSegment& segment) {
  for (int head = 0; head < shape.value_heads; ++head) {
    fold({shape, segment.carry, head}, *segment.carry.rows, state_of(segment, head));
  }
  *segment.carry.rows = 0;
}

}  // namespace

GatedDeltaOps reference_gated_delta_ops() {
  return {recurrent, chunked, flush_carry, commit};
}

}  // namespace motley
