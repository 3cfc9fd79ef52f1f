#include "ops/index_pool.h"

#include <algorithm>
#include <cmath>
#include <vector>

#include "ops/reference/reference_ops.h"

namespace motley {
namespace {

// Key and gate of the token at `position`: a row of the segment, or one before it in the ring.
struct Token {
  const double* k;
  const double* gate;
};
Token token_at(int64_t position, const ConstTensorView& k, const ConstTensorView& gate,
               const IndexPoolSegment& segment) {
  const int64_t row = position - segment.rows.first_position.value;
  if (row >= 0) {
    return {k.row<double>(segment.rows.first_row + row),
            gate.row<double>(segment.rows.first_row + row)};
  }
  const double* held = segment.ring.row<double>(position % segment.ring.rows());
  return {held, held + k.cols()};
}

void mix_pool(const std::vector<Token>& tokens, const ConstTensorView& ape, int64_t dim,
              double* key) {
  for (int64_t c = 0; c < dim; ++c) {
    std::vector<double> share;
    for (size_t j = 0; j < tokens.size(); ++j) {
      share.push_back(tokens[j].gate[c] + double{ape.row<float>(static_cast<int64_t>(j))[c]});
    }
    const double highest = *std::max_element(share.begin(), share.end());
    double sum = 0;
    for (double& value : share) sum += value = std::exp(value - highest);
    key[c] = 0;
    for (size_t j = 0; j < tokens.size(); ++j) key[c] += share[j] / sum * tokens[j].k[c];
  }
}

void keep_tokens(const ConstTensorView& k, const ConstTensorView& gate,
                 const IndexPoolSegment& segment) {
  const int64_t dim = k.cols();
  for (int64_t row = 0; row < segment.rows.rows; ++row) {
    const int64_t position = segment.rows.first_position.value + row;
    double* held = segment.ring.row<double>(position % segment.ring.rows());
    std::copy_n(k.row<double>(segment.rows.first_row + row), dim, held);
    std::copy_n(gate.row<double>(segment.rows.first_row + row), dim, held + dim);
  }
}

void pool_keys(Stream&, const ConstTensorView& k, const ConstTensorView& gate,
               const ConstTensorView& ape, std::span<const IndexPoolSegment> segments,
               const TensorView& keys) {
  const int64_t pool = ape.rows();
  int64_t next = 0;
  for (const IndexPoolSegment& segment : segments) {
    const PoolRange range = completed_pools(segment.rows, pool);
    for (int64_t p = range.first; p < range.first + range.count; ++p) {
      std::vector<Token> tokens;
      for (int64_t j = 0; j < pool; ++j) {
        tokens.push_back(token_at(p * pool + j, k, gate, segment));
      }
      mix_pool(tokens, ape, k.cols(), keys.row<double>(next++));
    }
    keep_tokens(k, gate, segment);
  }
}

}  // namespace

IndexPoolOps reference_index_pool_ops() {
  return {pool_keys, host_pool_tokens};
}

}  // namespace motley
