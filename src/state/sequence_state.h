// The state of one sequence, allocated as StateLayout says (R2).
//
// Fixed pieces lie in one block; paged pieces grow a page (64 tokens) at a time per layer, taken
// from a pool that all sequences share and that refuses to exceed its budget.
// Ownership: a sequence owns its pages and returns them to the pool, which must outlive it.
// Thread rule: one thread per sequence; the pool is shared and locks.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <vector>

#include "base/aligned_buffer.h"
#include "base/context.h"
#include "spec/state_layout.h"
#include "state/page_pool.h"
#include "tensor/cache_view.h"
#include "tensor/row_cache.h"

namespace motley {

class SequenceState {
 public:
  // kResourceExhausted with the arithmetic when the fixed part does not fit.
  static Result<SequenceState> create(const StateLayout& layout, PagePool& pool);
  SequenceState(SequenceState&&) noexcept;
  SequenceState& operator=(SequenceState&&) = delete;
  ~SequenceState();

  // Room for `tokens` tokens in every paged piece. On an error nothing is lost: the pages that
  // were there remain.
  Status reserve(int64_t tokens);

  // Back to an empty sequence; pages return to the pool.
  void clear();

  // Tokens whose state is complete; advanced by the engine after a step.
  int64_t length() const { return length_; }
  void set_length(int64_t tokens) { length_ = tokens; }
  // Positions whose rows in the draft layer's cache are made from the trunk's own hidden states.
  int64_t draft_length() const { return draft_length_; }
  void set_draft_length(int64_t positions) { draft_length_ = positions; }

  // Paged keys and values of `layer`, holding `tokens` tokens. `head_layout` gives heads and
  // dimension; its dtype and page size must agree with the layout.
  CacheView cache(int layer, StateKind kind, const PageLayout& head_layout, int64_t tokens);

  // Paged rows of `layer`, holding `rows` rows. The layout's pages must be those of the piece.
  RowCacheView rows(int layer, StateKind kind, const RowCacheLayout& row_layout, int64_t rows);

  // A fixed piece as bytes. The entry must exist.
  std::byte* fixed(int layer, StateKind kind);

  int64_t bytes() const;
  const StateLayout& layout() const { return *layout_; }

  // Everything but the paged pieces, for rollback tests and snapshots.
  std::vector<std::byte> save_fixed() const;
  void restore_fixed(const std::vector<std::byte>& saved);

  // Rows of the chunked delta rule's unfinished block, per layer (0 when it is not used).
  int32_t* carry_rows(int layer) { return &carry_rows_[static_cast<size_t>(layer)]; }
  bool has_carry() const;

 private:
  SequenceState(const StateLayout& layout, PagePool& pool);

  struct Piece {
    int layer;
    StateKind kind;
    size_t offset = 0;              // fixed pieces: into fixed_
    int64_t page_bytes = 0;         // paged pieces
    std::vector<std::byte*> pages;  // owned through the pool
  };

  Piece& piece(int layer, StateKind kind);

  const StateLayout* layout_;
  PagePool* pool_;
  AlignedBuffer fixed_;
  std::vector<Piece> pieces_;
  std::vector<int32_t> carry_rows_;
  int64_t length_ = 0;
  int64_t draft_length_ = 0;
};

}  // namespace motley
