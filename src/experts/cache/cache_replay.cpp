#include "experts/cache/cache_replay.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>

#include "experts/cache/expert_cache.h"
#include "experts/cache/frequency_recency.h"

namespace motley {
namespace {

// The distinct ids of one token and layer in ascending order, as a step wants them.
void take_wanted(std::span<const uint16_t> ids, std::vector<int32_t>& wanted) {
  wanted.assign(ids.begin(), ids.end());
  std::sort(wanted.begin(), wanted.end());
}

// Knows the steps in advance: by expert, the numbers of the steps that use it.
class BeladyPolicy final : public EvictionPolicy {
 public:
  BeladyPolicy(const CacheShape& shape, const RouteTrace& trace)
      : shape_(shape), first_(shape.size() + 1, 0), next_(shape.size(), 0) {
    for_each_use(trace, [&](size_t index, int64_t) { ++first_[index + 1]; });
    for (size_t i = 1; i < first_.size(); ++i) first_[i] += first_[i - 1];
    steps_.resize(first_.back());
    std::vector<size_t> end(first_.begin(), first_.end() - 1);
    for_each_use(trace, [&](size_t index, int64_t step) { steps_[end[index]++] = step; });
    std::copy(first_.begin(), first_.end() - 1, next_.begin());
  }

  std::string_view name() const override { return "Belady"; }
  void step(int layer, std::span<const int32_t> wanted, std::span<const uint8_t>) override {
    for (const int32_t expert : wanted) ++next_[shape_.index(layer, expert)];
  }
  void record(int, std::span<const int32_t>) override {}
  EvictionKey key(int layer, int expert) const override {
    const size_t index = shape_.index(layer, expert);
    if (next_[index] == first_[index + 1]) return {-std::numeric_limits<double>::infinity(), 0};
    return {-static_cast<double>(steps_[next_[index]]), 0};
  }

 private:
  template <typename Visit>
  void for_each_use(const RouteTrace& trace, Visit visit) const {
    int64_t step = 0;
    for (int64_t token = 0; token < trace.tokens(); ++token) {
      if (trace.roles[static_cast<size_t>(token)] == RouteRole::kPrefill) continue;
      for (int layer = 0; layer < shape_.layers; ++layer, ++step) {
        for (const uint16_t id : trace.of(token, layer)) visit(shape_.index(layer, id), step);
      }
    }
  }

  CacheShape shape_;
  std::vector<size_t> first_;  // by expert, into steps_
  std::vector<size_t> next_;   // by expert, its next use in steps_
  std::vector<int64_t> steps_;
};

std::unique_ptr<EvictionPolicy> make_policy(ReplayPolicy policy, const CacheShape& shape,
                                            const RouteTrace& trace) {
  switch (policy) {
    case ReplayPolicy::kLru:
      return make_lru_policy(shape);
    case ReplayPolicy::kLfu:
      return make_lfu_policy(shape);
    case ReplayPolicy::kMotley:
      return make_frequency_recency(shape);
    case ReplayPolicy::kBelady:
      break;
  }
  return std::make_unique<BeladyPolicy>(shape, trace);
}

}  // namespace

std::string_view replay_policy_name(ReplayPolicy policy) {
  constexpr std::array<std::string_view, 4> kNames = {"LRU", "LFU", "motley", "Belady"};
  return kNames[static_cast<size_t>(policy)];
}

int slots_for_residency(const RouteShape& shape, double share) {
  const double experts = static_cast<double>(shape.layers) * shape.experts;
  return static_cast<int>(std::lround(std::clamp(share, 0.0, 1.0) * experts));
}

Result<ReplayResult> replay_routes(const RouteTrace& trace, ReplayPolicy policy, int slots) {
  CacheShape shape{trace.shape.layers, trace.shape.experts, slots, trace.shape.top};
  MOTLEY_RETURN_IF_ERROR(check_cache_shape(shape));
  const auto decoded = std::count(trace.roles.begin(), trace.roles.end(), RouteRole::kDecode);
  if (decoded == 0) return invalid_argument("the trace holds no decoded token to replay");
  if (policy == ReplayPolicy::kBelady) shape.floor = 0;
  ExpertCache cache(shape, make_policy(policy, shape, trace));
  ReplayResult result;
  std::vector<int32_t> wanted;
  for (int64_t token = 0; token < trace.tokens(); ++token) {
    const bool sweep = trace.roles[static_cast<size_t>(token)] == RouteRole::kPrefill;
    HitCount& quarter = result.quarters[static_cast<size_t>(result.tokens * 4 / decoded) % 4];
    for (int layer = 0; layer < trace.shape.layers; ++layer) {
      take_wanted(trace.of(token, layer), wanted);
      if (sweep) {
        cache.record_only(layer, wanted);
        continue;
      }
      quarter.hits += cache.plan(layer, wanted).hits;
      quarter.uses += static_cast<int64_t>(wanted.size());
    }
    result.tokens += !sweep;
  }
  result.all = {cache.counts().uses, cache.counts().hits};
  result.evictions = cache.counts().evictions;
  return result;
}

}  // namespace motley
