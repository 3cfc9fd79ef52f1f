#include "base/arena.h"

#include <algorithm>

namespace motley {
namespace {
constexpr size_t kSmallestBlock = size_t{1} << 20;
}

Arena::~Arena() {
  free_blocks();
}

Arena::Block Arena::allocate_block(size_t bytes) {
  Block block;
  block.size = bytes;
  if (source_ != nullptr) {
    block.data = source_->allocate(bytes);
  } else if (Result<AlignedBuffer> buffer = AlignedBuffer::allocate(bytes); buffer.is_ok()) {
    block.host = std::move(buffer).value();
    block.data = block.host.data();
  }
  return block;
}

void Arena::free_blocks() {
  if (source_ != nullptr) {
    for (const Block& block : blocks_) source_->release(block.data, block.size);
  }
  blocks_.clear();
}

void* Arena::allocate_bytes(size_t bytes) {
  const size_t rounded = (std::max<size_t>(bytes, 1) + kAlignment - 1) / kAlignment * kAlignment;
  while (block_ < blocks_.size() && used_ + rounded > blocks_[block_].size) {
    ++block_;
    used_ = 0;
  }
  if (block_ == blocks_.size()) {
    Block block = allocate_block(std::max({rounded, kSmallestBlock, capacity_bytes()}));
    MOTLEY_CHECK(block.data != nullptr, "out of memory for the scratch arena");
    blocks_.push_back(std::move(block));
  }
  std::byte* result = blocks_[block_].data + used_;
  used_ += rounded;
  peak_ = std::max(peak_, in_use());
  return result;
}

size_t Arena::capacity_bytes() const {
  size_t total = 0;
  for (const Block& block : blocks_) total += block.size;
  return total;
}

void Arena::release(size_t block, size_t used) {
  block_ = block;
  used_ = used;
  // Once empty, several blocks become one so that the next step finds its peak in one piece.
  if (block_ == 0 && used_ == 0 && blocks_.size() > 1) {
    const size_t size = capacity_bytes();
    free_blocks();
    Block merged = allocate_block(size);
    if (merged.data != nullptr) blocks_.push_back(std::move(merged));
  }
}

size_t Arena::in_use() const {
  size_t total = used_;
  for (size_t i = 0; i < block_; ++i) total += blocks_[i].size;
  return total;
}

}  // namespace motley
