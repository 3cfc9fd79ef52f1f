// Pages of equal or different sizes under one byte budget, recycled between sequences.
// Thread rule: any thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <mutex>
#include <vector>

#include "base/aligned_buffer.h"
#include "base/context.h"
#include "base/status.h"

namespace motley {

class PagePool {
 public:
  // `budget_bytes` bounds everything handed out, fixed blocks included.
  PagePool(Context& context, int64_t budget_bytes) : context_(context), budget_(budget_bytes) {}
  PagePool(const PagePool&) = delete;
  PagePool& operator=(const PagePool&) = delete;

  // A page of `bytes` bytes, 64-byte aligned; contents are those of its last user.
  Result<std::byte*> take(int64_t bytes);
  void give_back(std::byte* page, int64_t bytes);

  // Counts a block that the caller allocates itself.
  Status charge(int64_t bytes);
  void discharge(int64_t bytes);

  int64_t used_bytes() const;
  int64_t budget_bytes() const { return budget_; }

 private:
  Status charge_locked(int64_t bytes);

  Context& context_;
  const int64_t budget_;

  mutable std::mutex mutex_;  // protects everything below
  int64_t used_ = 0;
  std::map<int64_t, std::vector<std::byte*>> free_;  // by page size
  std::vector<AlignedBuffer> slabs_;
};

}  // namespace motley
