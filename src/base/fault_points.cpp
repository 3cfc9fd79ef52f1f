#include "base/fault_points.h"

namespace motley {

void FaultPoints::arm(std::string point, int64_t nth, Status error) {
  const std::lock_guard lock(mutex_);
  armed_.insert_or_assign(std::move(point), Armed{nth, std::move(error)});
  any_.store(true, std::memory_order_relaxed);
}

void FaultPoints::clear() {
  const std::lock_guard lock(mutex_);
  armed_.clear();
  any_.store(false, std::memory_order_relaxed);
}

Status FaultPoints::visit(std::string_view point) {
  if (!any_.load(std::memory_order_relaxed)) return Status::ok();
  const std::lock_guard lock(mutex_);
  const auto found = armed_.find(point);
  if (found == armed_.end() || --found->second.remaining > 0) return Status::ok();
  Status error = std::move(found->second.error);
  armed_.erase(found);
  return error;
}

}  // namespace motley
