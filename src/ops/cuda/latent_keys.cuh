// The keys of one row of attention over latent rows, by their number among those that it sees.
#pragma once

#include "ops/cuda/device_math.cuh"
#include "ops/cuda/latent_kernels.h"

namespace motley::cuda {

struct LatentKeys {
  const std::byte* const* pages;
  const int32_t* positions;  // null: key i is row i of the cache
  CacheShard shard;
  int count;
  int rows_per_page;
  int row_bytes;

  // The row of the cache that key `index` lies in, negative: in another shard.
  __device__ int row_of(int index) const {
    if (positions == nullptr) return index;
    const int position = positions[index];
    if (shard.count == 1) return position;
    const int turn = position / shard.interleave;
    if (turn % shard.count != shard.index) return -1;
    return turn / shard.count * shard.interleave + position % shard.interleave;
  }
  __device__ const std::byte* address(int row) const {
    if (row < 0) return nullptr;
    const auto number = static_cast<uint32_t>(row);
    const auto per_page = static_cast<uint32_t>(rows_per_page);
    return pages[number / per_page] + number % per_page * static_cast<uint32_t>(row_bytes);
  }
  __device__ const std::byte* at(int index) const { return address(row_of(index)); }
};

__device__ inline LatentKeys find_latent_keys(const LatentCall& call, const LatentRow& row) {
  LatentKeys keys{row.pages,          nullptr,
                  row.shard,          static_cast<int>(row.visible),
                  call.rows_per_page, call.width * (call.is_bf16 ? 2 : 4)};
  if (call.positions == nullptr) return keys;
  const int count = call.counts[row.row * call.counts_stride];
  if (count == kEveryKey) return keys;
  keys.positions = call.positions + row.row * call.positions_stride;
  keys.count = count;
  return keys;
}

// Keys [first, first + count) of a row belong to a chunk.
struct LatentChunk {
  int first;
  int count;
};

__device__ inline LatentChunk find_latent_chunk(const LatentCall& call, int chunk, int keys) {
  LatentChunk result;
  result.first = chunk * kAttendChunk;
  const int left = max(keys - result.first, 0);
  result.count = chunk + 1 == call.chunks ? left : min(left, kAttendChunk);
  return result;
}

// Where a chunk's result of its first head goes.
struct LatentTarget {
  float* out;
  float* lse;
};

__device__ inline LatentTarget find_latent_target(const LatentCall& call, const LatentRow& row,
                                                  int64_t item, int chunk) {
  if (call.chunks == 1) {
    return {call.out + row.row * call.out_stride, call.lse + row.row * call.lse_stride};
  }
  const int64_t part = item * call.chunks + chunk;
  return {call.part_out + part * call.heads * call.rank, call.part_lse + part * call.heads};
}

}  // namespace motley::cuda
