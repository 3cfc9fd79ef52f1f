// Replays recorded routes through the expert cache: what a policy would have hit.
//
// The cache is the one that runs (expert_cache.h), with the floor of one token's experts per layer.
// Decoded tokens go through it one by one; tokens of prefill are sweeps that it only learns from,
// and do not count. Belady evicts what is used furthest in the future, over all layers and without
// a floor: with equal slots, and the experts of a step in slots together, no policy can miss less,
// so it is the exact bound of a cache without a floor and an upper bound of those with one.
// Cost: O(log) per use; Belady needs 8 bytes per use. Thread rule: free functions.
#pragma once

#include <array>
#include <cstdint>
#include <string_view>

#include "base/status.h"
#include "experts/cache/route_trace.h"

namespace motley {

enum class ReplayPolicy : uint8_t { kLru, kLfu, kMotley, kBelady };
inline constexpr std::array<ReplayPolicy, 4> kReplayPolicies = {
    ReplayPolicy::kLru, ReplayPolicy::kLfu, ReplayPolicy::kMotley, ReplayPolicy::kBelady};
std::string_view replay_policy_name(ReplayPolicy policy);

struct HitCount {
  int64_t uses = 0;
  int64_t hits = 0;
  double rate() const {
    return uses == 0 ? 0 : static_cast<double>(hits) / static_cast<double>(uses);
  }
};

struct ReplayResult {
  HitCount all;
  std::array<HitCount, 4> quarters;  // of the decoded tokens
  int64_t evictions = 0;
  double misses_per_token() const {
    return tokens == 0 ? 0 : static_cast<double>(all.uses - all.hits) / static_cast<double>(tokens);
  }
  int64_t tokens = 0;  // decoded
};

// The slots that hold `share` (0 to 1) of all experts.
int slots_for_residency(const RouteShape& shape, double share);

// kResourceExhausted when `slots` are fewer than the floors need; kInvalidArgument when no token of
// the trace is a decoded one.
Result<ReplayResult> replay_routes(const RouteTrace& trace, ReplayPolicy policy, int slots);

}  // namespace motley
