// Communication between the ranks that share a model. Low-level interfaces live here so that the
// decoder sees them and never MPI, NCCL or UCX (cluster/ implements them).
// Thread rule: one thread per instance. Errors: kIo when a peer is gone.
#pragma once

#include <cstddef>
#include <span>

#include "base/status.h"

namespace motley {

class Collective {
 public:
  virtual ~Collective() = default;
  virtual int rank() const = 0;
  virtual int ranks() const = 0;
  // Element-wise sum over all ranks, in rank order, in place.
  virtual Status all_reduce_sum(std::span<float> values) = 0;
  virtual Status all_reduce_sum(std::span<double> values) = 0;
  // `out` holds ranks() pieces of `in`'s size, in rank order.
  virtual Status all_gather(std::span<const std::byte> in, std::span<std::byte> out) = 0;
  virtual Status barrier() = 0;
};

// One rank: every operation is the identity.
class SingleCollective final : public Collective {
 public:
  int rank() const override { return 0; }
  int ranks() const override { return 1; }
  Status all_reduce_sum(std::span<float> values) override;
  Status all_reduce_sum(std::span<double> values) override;
  Status all_gather(std::span<const std::byte> in, std::span<std::byte> out) override;
  Status barrier() override { return Status::ok(); }
};

// A byte channel to one peer, used to move sequence state between machines.
class Link {
 public:
  virtual ~Link() = default;
  virtual Status send(std::span<const std::byte> bytes) = 0;
  // Fills `bytes` completely or fails.
  virtual Status receive(std::span<std::byte> bytes) = 0;
};

}  // namespace motley
