// A paged cache that owns its pages, for tests.
#pragma once

#include <limits>
#include <vector>

#include "numeric/half.h"
#include "ops/attention.h"
#include "ops/op_test_util.h"

namespace motley {

class TestCache {
 public:
  // Room for `tokens` tokens of a sequence; the pages start as NaN.
  TestCache(PageLayout layout, int64_t tokens, CacheShard shard = {})
      : layout_(layout), shard_(shard) {
    const int64_t held = shard.tokens_below(tokens);
    const int64_t pages = (held + layout.tokens_per_page - 1) / layout.tokens_per_page;
    for (int64_t i = 0; i < pages; ++i) {
      storage_.emplace_back(static_cast<size_t>(layout.page_bytes()), std::byte{0xFF});
    }
    for (auto& page : storage_) pages_.push_back(page.data());
  }
  TestCache(const TestCache&) = delete;
  TestCache& operator=(const TestCache&) = delete;

  CacheView view(int64_t length) const { return {pages_, layout_, shard_, length}; }
  const std::vector<std::vector<std::byte>>& storage() const { return storage_; }
  // Key or value element as stored.
  float element(int head, int64_t token, int index, bool is_value) const {
    const int slot = static_cast<int>(token % layout_.tokens_per_page);
    const int64_t at =
        index + (is_value ? layout_.value_offset(head, slot) : layout_.key_offset(head, slot));
    const std::byte* page = pages_[static_cast<size_t>(token / layout_.tokens_per_page)];
    if (layout_.dtype == DType::kF32) return reinterpret_cast<const float*>(page)[at];
    return to_float(reinterpret_cast<const Bf16*>(page)[at]);
  }

 private:
  PageLayout layout_;
  CacheShard shard_;
  std::vector<std::vector<std::byte>> storage_;
  std::vector<std::byte*> pages_;
};

template <typename T>
struct TestPartial {
  TestPartial(int64_t rows, int64_t heads, int64_t dim)
      : out(Shape{rows, heads, dim}), lse(Shape{rows, heads}) {}
  PartialAttention view() { return {out.view(), {lse.view()}}; }
  TestTensor<T> out;
  TestTensor<T> lse;
};

}  // namespace motley
