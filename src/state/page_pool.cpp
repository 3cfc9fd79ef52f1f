#include "state/page_pool.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/fault_points.h"

namespace motley {
namespace {
// Pages are cut from slabs so that a small page does not cost a system call and a large alignment.
constexpr int64_t kSlabBytes = int64_t{1} << 20;
constexpr int64_t kAlignment = 64;
}  // namespace

Result<std::byte*> PagePool::take(int64_t bytes) {
  MOTLEY_RETURN_IF_ERROR(context_.faults.visit("state.page"));
  const std::lock_guard lock(mutex_);
  std::vector<std::byte*>& free = free_[bytes];
  MOTLEY_RETURN_IF_ERROR(charge_locked(bytes));
  if (free.empty()) {
    const int64_t stride = (bytes + kAlignment - 1) / kAlignment * kAlignment;
    const int64_t count = std::max<int64_t>(kSlabBytes / stride, 1);
    Result<AlignedBuffer> slab = AlignedBuffer::allocate(static_cast<size_t>(count * stride));
    if (!slab.is_ok()) {
      used_ -= bytes;
      return slab.status();
    }
    for (int64_t i = count; i-- > 0;) free.push_back(slab->data() + i * stride);
    slabs_.push_back(std::move(slab).value());
  }
  std::byte* page = free.back();
  free.pop_back();
  return page;
}

void PagePool::give_back(std::byte* page, int64_t bytes) {
  const std::lock_guard lock(mutex_);
  free_[bytes].push_back(page);
  used_ -= bytes;
}

Status PagePool::charge(int64_t bytes) {
  const std::lock_guard lock(mutex_);
  return charge_locked(bytes);
}

void PagePool::discharge(int64_t bytes) {
  const std::lock_guard lock(mutex_);
  used_ -= bytes;
}

int64_t PagePool::used_bytes() const {
  const std::lock_guard lock(mutex_);
  return used_;
}

Status PagePool::charge_locked(int64_t bytes) {
  if (used_ + bytes > budget_) {
    return resource_exhausted(
        fmt::format("sequence state needs {} bytes more; {} of the {} byte budget are in use",
                    bytes, used_, budget_));
  }
  used_ += bytes;
  return Status::ok();
}

}  // namespace motley
