// A view of one layer's paged cache of plain rows of one sequence: a vector per cached row, such as
// the latent of a token or the key of an indexer. With its sharding, as a CacheView (R1).
//
// A page holds [rows_per_page, width]. Row i of this shard lies in page i / rows_per_page, slot
// i % rows_per_page. A row usually stands for one token; where it stands for several, its number
// counts such groups, and so do the shard and the length.
// Ownership: none; state/ owns the pages.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "numeric/dtype.h"
#include "tensor/cache_view.h"
#include "tensor/row_batch.h"
#include "tensor/tensor_view.h"

namespace motley {

struct RowCacheLayout {
  int rows_per_page = 64;
  int width = 0;
  DType dtype = DType::kF32;  // kF32, kBf16, or kF64 for the reference

  int64_t row_bytes() const { return int64_t{width} * dtype_bytes(dtype); }
  int64_t page_bytes() const { return rows_per_page * row_bytes(); }
};

struct RowCacheView {
  std::span<std::byte* const> pages;
  RowCacheLayout layout;
  CacheShard shard;
  int64_t length = 0;  // rows of the sequence that are stored (all shards together)
  MemorySpace space = MemorySpace::kHost;

  // Row `index` of this shard.
  std::byte* row(int64_t index) const {
    return pages[static_cast<size_t>(index / layout.rows_per_page)] +
           index % layout.rows_per_page * layout.row_bytes();
  }
};

struct RowCacheSegment {
  RowSegment rows;
  RowCacheView cache;
};

}  // namespace motley
