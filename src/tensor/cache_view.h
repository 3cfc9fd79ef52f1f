// A view of one layer's paged key/value cache of one sequence, with its sharding (R1).
//
// Tokens live in pages of `tokens_per_page`; a page holds, per key/value head, first all keys then
// all values: [kv_heads][2][tokens_per_page][head_dim]. Keys are stored after norm and rotation.
// Token t of this shard lies in page t / tokens_per_page, slot t % tokens_per_page.
// Ownership: none; state/ owns the pages. An attention op takes a CacheView, never a bare pointer.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "numeric/dtype.h"
#include "tensor/tensor_view.h"

namespace motley {

struct PageLayout {
  int tokens_per_page = 64;
  int kv_heads = 0;
  int head_dim = 0;
  DType dtype = DType::kF32;  // kF32, kBf16, or kF64 for the reference

  int64_t plane_elements() const { return int64_t{tokens_per_page} * head_dim; }
  int64_t page_bytes() const { return 2 * kv_heads * plane_elements() * dtype_bytes(dtype); }
  // Element offsets inside a page.
  int64_t key_offset(int head, int slot) const {
    return 2 * head * plane_elements() + int64_t{slot} * head_dim;
  }
  int64_t value_offset(int head, int slot) const {
    return (2 * head + 1) * plane_elements() + int64_t{slot} * head_dim;
  }
};

// Which tokens of the sequence this view holds: blocks of `interleave` tokens dealt to `count`
// shards in turn. {0, 1, 1} is the whole cache.
struct CacheShard {
  int index = 0;
  int count = 1;
  int interleave = 1;
  bool is_whole() const { return count == 1; }
  bool holds(int64_t position) const { return position / interleave % count == index; }
  // How many of the positions below `position` this shard holds; for a position that it holds,
  // the shard's own index of that token.
  int64_t tokens_below(int64_t position) const {
    const int64_t round = int64_t{count} * interleave;
    const int64_t rest = position % round - int64_t{index} * interleave;
    return position / round * interleave + (rest < 0 ? 0 : rest < interleave ? rest : interleave);
  }
};

struct CacheView {
  std::span<std::byte* const> pages;
  PageLayout layout;
  CacheShard shard;
  int64_t length = 0;  // tokens of the sequence whose keys are stored (all shards together)
  MemorySpace space = MemorySpace::kHost;
};

}  // namespace motley
