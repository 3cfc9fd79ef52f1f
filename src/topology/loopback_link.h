// The one-process Link: what is sent is received, in order.
#pragma once

#include <vector>

#include "topology/collective.h"

namespace motley {

class LoopbackLink final : public Link {
 public:
  Status send(std::span<const std::byte> bytes) override;
  // kIo when fewer bytes were sent than are asked for.
  Status receive(std::span<std::byte> bytes) override;

 private:
  std::vector<std::byte> pending_;
};

}  // namespace motley
