#include "base/arena.h"

#include <algorithm>

namespace motley {
namespace {
constexpr size_t kSmallestBlock = size_t{1} << 20;
}

void* Arena::allocate_bytes(size_t bytes) {
  const size_t rounded = (std::max<size_t>(bytes, 1) + kAlignment - 1) / kAlignment * kAlignment;
  while (block_ < blocks_.size() && used_ + rounded > blocks_[block_].size()) {
    ++block_;
    used_ = 0;
  }
  if (block_ == blocks_.size()) {
    const size_t size = std::max({rounded, kSmallestBlock, capacity_bytes()});
    Result<AlignedBuffer> block = AlignedBuffer::allocate(size);
    MOTLEY_CHECK(block.is_ok(), "out of memory for the scratch arena");
    blocks_.push_back(std::move(block).value());
  }
  std::byte* result = blocks_[block_].data() + used_;
  used_ += rounded;
  peak_ = std::max(peak_, in_use());
  return result;
}

size_t Arena::capacity_bytes() const {
  size_t total = 0;
  for (const AlignedBuffer& block : blocks_) total += block.size();
  return total;
}

void Arena::release(size_t block, size_t used) {
  block_ = block;
  used_ = used;
  // Once empty, several blocks become one so that the next step finds its peak in one piece.
  if (block_ == 0 && used_ == 0 && blocks_.size() > 1) {
    const size_t size = capacity_bytes();
    blocks_.clear();
    Result<AlignedBuffer> merged = AlignedBuffer::allocate(size);
    if (merged.is_ok()) blocks_.push_back(std::move(merged).value());
  }
}

size_t Arena::in_use() const {
  size_t total = used_;
  for (size_t i = 0; i < block_; ++i) total += blocks_[i].size();
  return total;
}

}  // namespace motley
