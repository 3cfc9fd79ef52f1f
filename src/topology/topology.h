// How the ranks of one model are arranged: built once, hashed, exchanged and compared at start,
// then passed by const reference to target and draft alike (R3).
// Ownership: an immutable value. No component builds its own copy of parallel settings.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/status.h"

namespace motley {

struct TopologyConfig {
  int ranks = 1;
  int rank = 0;                     // of this process; the only field that differs between peers
  int tensor_parallel = 1;          // ranks that share each matrix
  int decode_context_parallel = 1;  // ranks that share each cache, by token
  int cache_interleave = 1;         // consecutive tokens on one rank
  std::vector<std::string> rails;   // network devices, in order of use
  std::vector<std::string> backends = {"cpu"};  // one per rank
};

class Topology {
 public:
  // kInvalidArgument when the numbers contradict each other.
  static Result<Topology> create(TopologyConfig config);
  static Topology single(std::string backend = "cpu");

  const TopologyConfig& config() const { return config_; }
  int ranks() const { return config_.ranks; }
  int rank() const { return config_.rank; }
  // Equal on all ranks of one run; covers everything but `rank`.
  uint64_t hash() const { return hash_; }

 private:
  explicit Topology(TopologyConfig config);

  TopologyConfig config_;
  uint64_t hash_ = 0;
};

}  // namespace motley
