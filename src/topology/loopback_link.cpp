#include "topology/loopback_link.h"

#include <algorithm>

namespace motley {

Status LoopbackLink::send(std::span<const std::byte> bytes) {
  pending_.insert(pending_.end(), bytes.begin(), bytes.end());
  return Status::ok();
}

Status LoopbackLink::receive(std::span<std::byte> bytes) {
  if (bytes.size() > pending_.size()) {
    return io_error("loopback link: " + std::to_string(bytes.size()) + " bytes wanted, " +
                    std::to_string(pending_.size()) + " sent");
  }
  const auto end = pending_.begin() + static_cast<std::ptrdiff_t>(bytes.size());
  std::copy(pending_.begin(), end, bytes.begin());
  pending_.erase(pending_.begin(), end);
  return Status::ok();
}

}  // namespace motley
