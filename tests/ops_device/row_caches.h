// Paged caches of plain rows that exist twice, for the cases of latent attention and of the
// indexer.
#pragma once

#include <vector>

#include "ops_device/harness.h"
#include "tensor/row_cache.h"

namespace motley::ops_device {

struct TwinRowCache {
  std::vector<std::vector<double>> storage;
  std::vector<std::byte*> host;
  std::vector<std::byte*> device;
  RowCacheLayout layout;
  int64_t length = 0;  // rows of the sequence, all shards together

  RowCacheView host_view(const CacheShard& shard) const {
    RowCacheLayout wide = layout;
    wide.dtype = DType::kF64;
    return {host, wide, shard, length, MemorySpace::kHost};
  }
  RowCacheView device_view(const CacheShard& shard, MemorySpace space) const {
    return {device, layout, shard, length, space};
  }
};

// A shard's rows of a sequence of `length`, of random contents, rounded to the format of the cache.
TwinRowCache random_row_cache(Harness& h, const RowCacheLayout& layout, const CacheShard& shard,
                              int64_t length);

}  // namespace motley::ops_device
