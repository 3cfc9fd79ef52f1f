// A paged cache of rows that owns its pages, for tests.
#pragma once

#include <vector>

#include "numeric/half.h"
#include "ops/op_test_util.h"
#include "tensor/row_cache.h"

namespace motley {

class TestRowCache {
 public:
  // Room for `rows` rows of a sequence; the pages start as NaN.
  TestRowCache(RowCacheLayout layout, int64_t rows, CacheShard shard = {})
      : layout_(layout), shard_(shard) {
    const int64_t held = shard.tokens_below(rows);
    const int64_t pages = (held + layout.rows_per_page - 1) / layout.rows_per_page;
    for (int64_t i = 0; i < pages; ++i) {
      storage_.emplace_back(static_cast<size_t>(layout.page_bytes()), std::byte{0xFF});
    }
    for (auto& page : storage_) pages_.push_back(page.data());
  }
  TestRowCache(const TestRowCache&) = delete;
  TestRowCache& operator=(const TestRowCache&) = delete;

  RowCacheView view(int64_t length) const { return {pages_, layout_, shard_, length}; }
  // An element as stored, of a cache that is not the reference's.
  float element(int64_t row, int64_t column) const {
    const std::byte* data = view(0).row(row);
    if (layout_.dtype == DType::kF32) return reinterpret_cast<const float*>(data)[column];
    return to_float(reinterpret_cast<const Bf16*>(data)[column]);
  }

 private:
  RowCacheLayout layout_;
  CacheShard shard_;
  std::vector<std::vector<std::byte>> storage_;
  std::vector<std::byte*> pages_;
};

// What a cache of this type keeps of the values.
inline TestTensor<float> as_cached(DType dtype, TestTensor<float> tensor) {
  if (dtype == DType::kF32) return tensor;
  for (int64_t r = 0; r < tensor.rows(); ++r) {
    for (int64_t c = 0; c < tensor.cols(); ++c) {
      tensor.row(r)[c] = to_float(to_bf16(tensor.row(r)[c]));
    }
  }
  return tensor;
}

}  // namespace motley
