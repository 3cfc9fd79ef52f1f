// Pooled index keys: an indexer that scores pools of tokens keeps one key per pool, a mix of its
// tokens' keys with weights per channel that the tokens themselves give.
//
// Pool p holds the tokens at positions p * pool to p * pool + pool - 1. Per channel c, in float32:
//   s_jc = softmax over j of (gate_jc + ape_jc);  key_c = sum_j s_jc k_jc
// A pool has a key once its last token is there. Until then its tokens wait in a ring of raw keys
// and gates. Which pool is open follows from the positions of the rows alone, so a sequence that
// is cut back needs nothing undone: later rows overwrite the ring where they meet it.
// Source: the text model of transformers that has the configuration key index_kpool.
#pragma once

#include <cstdint>
#include <span>

#include "tensor/row_batch.h"
#include "tensor/stream.h"
#include "tensor/tensor_view.h"

namespace motley {

// Rows of the ring beyond a pool: how far back a sequence may be cut (draft tokens refused) and
// still find every token of the pool that is then open.
inline constexpr int kIndexRingSpare = 8;

constexpr int64_t index_ring_rows(int64_t pool) {
  return pool + kIndexRingSpare;
}

// The pools that the rows of a segment complete: [first, first + count).
struct PoolRange {
  int64_t first = 0;
  int64_t count = 0;
};
constexpr PoolRange completed_pools(const RowSegment& rows, int64_t pool) {
  const int64_t first = rows.first_position.value / pool;
  return {first, (rows.first_position.value + rows.rows) / pool - first};
}

struct IndexPoolSegment {
  RowSegment rows;
  // [index_ring_rows(pool), 2 * dim] in activation dtype: key | gate of the token at position t in
  // row t % rows. Holds the tokens before the segment; updated with the segment's own.
  TensorView ring;
};

// From pools that an indexer chose to the tokens that attention may see.
struct PoolTokensArgs {
  ConstTensorView pools;   // [rows, top] int32, ascending, complete at the row's position
  ConstTensorView counts;  // [rows] int32: how many of them
  int64_t pool = 0;
  bool tail = true;  // the tokens of the open pool are seen too, whatever was chosen
  std::span<const RowSegment> segments;
  TensorView positions;     // [rows, pool_tokens_width()] int32, ascending; the rest is -1
  TensorView token_counts;  // [rows] int32; 0 is possible without the tail
};

// Tokens that `top` pools have, and the longest tail: a pool less one, since a pool that is
// complete is chosen by its score like any other, the row's own token with it.
constexpr int64_t pool_tokens_width(int64_t top, int64_t pool, bool tail) {
  return top * pool + (tail ? pool - 1 : 0);
}

struct IndexPoolOps {
  // keys [sum of the segments' completed pools, dim]: segment after segment, pools ascending.
  // k, gate: [rows, dim]; ape: [pool, dim] float32. The bits of a pool's key do not depend on which
  // of its tokens come from the ring.
  void (*pool_keys)(Stream& stream, const ConstTensorView& k, const ConstTensorView& gate,
                    const ConstTensorView& ape, std::span<const IndexPoolSegment> segments,
                    const TensorView& keys) = nullptr;

  // Rows that no segment names keep what they had.
  void (*pool_tokens)(Stream& stream, const PoolTokensArgs& args) = nullptr;
};

// The same for every backend whose memory the host can reach.
void host_pool_tokens(Stream& stream, const PoolTokensArgs& args);

}  // namespace motley
