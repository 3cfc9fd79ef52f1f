#include "topology/topology.h"

#include "base/hash.h"

namespace motley {
namespace {

uint64_t hash_config(const TopologyConfig& config) {
  std::string text;
  for (const int number : {config.ranks, config.tensor_parallel, config.decode_context_parallel,
                           config.cache_interleave}) {
    text += std::to_string(number) + ";";
  }
  // Lengths come first: a name may hold any separator.
  for (const auto* names : {&config.rails, &config.backends}) {
    text += std::to_string(names->size()) + ";";
    for (const std::string& name : *names) text += std::to_string(name.size()) + ":" + name;
  }
  return hash_bytes(text);
}

}  // namespace

Topology::Topology(TopologyConfig config)
    : config_(std::move(config)), hash_(hash_config(config_)) {}

Result<Topology> Topology::create(TopologyConfig config) {
  const auto refuse = [](std::string text) { return invalid_argument("topology: " + text); };
  if (config.ranks < 1) return refuse("at least one rank is needed");
  if (config.rank < 0 || config.rank >= config.ranks) return refuse("rank is outside 0..ranks-1");
  if (config.tensor_parallel < 1 || config.ranks % config.tensor_parallel != 0) {
    return refuse("tensor_parallel must divide ranks");
  }
  if (config.decode_context_parallel < 1 || config.ranks % config.decode_context_parallel != 0) {
    return refuse("decode_context_parallel must divide ranks");
  }
  if (config.cache_interleave < 1) return refuse("cache_interleave must be positive");
  if (config.backends.size() != static_cast<size_t>(config.ranks)) {
    return refuse("one backend per rank is needed");
  }
  return Topology(std::move(config));
}

Topology Topology::single(std::string backend) {
  TopologyConfig config;
  config.backends = {std::move(backend)};
  return Topology(std::move(config));
}

}  // namespace motley
