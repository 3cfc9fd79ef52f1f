// What would make decode faster (engine/plan/prediction.h).
#include <fmt/format.h>

#include <algorithm>

#include "engine/plan/prediction.h"

namespace motley {
namespace {

constexpr double kWantedFactor = 1.5;
constexpr double kLeastFactor = 1.05;
// Threads that together get this share of what each gets alone leave the memory room for more.
constexpr double kUnsaturated = 0.7;

MemoryPlan with_slots(const MemoryPlan& plan, int64_t slots) {
  MemoryPlan other = plan;
  other.slots = slots;
  other.streamed = slots < plan.needs.expert_count;
  other.budget_bytes = other.total_bytes();
  return other;
}

ModelRates with_threads(const PredictionInput& input, double factor, int64_t context) {
  ModelRates rates = input.rates;
  const double alone = rates.read_one_bytes_per_s * rates.threads;
  if (rates.read_all_bytes_per_s > kUnsaturated * alone) rates.read_all_bytes_per_s *= factor;
  const auto faster = [&](double seconds, int64_t bytes) {
    const double least = static_cast<double>(bytes) / rates.read_all_bytes_per_s;
    return std::min(seconds, std::max(seconds / factor, least));
  };
  for (size_t i = 0; i < rates.kinds.size(); ++i) {
    const LayerKind& kind = input.kinds[i];
    KindRates& each = rates.kinds[i];
    const int64_t state = 2 * kind.state_fixed_bytes + context * kind.state_bytes_per_token;
    each.decode_s = faster(each.decode_s, kind.dense_bytes + state);
    each.experts_s = faster(each.experts_s, kind.experts_per_token * kind.one_expert_bytes);
    each.expert_alone_s = faster(each.expert_alone_s, kind.one_expert_bytes);
  }
  rates.head_s = faster(rates.head_s, rates.head_bytes);
  rates.threads = static_cast<int>(rates.threads * factor);
  return rates;
}

// The fewest slots that give the wanted rate, or all of them.
PredictionInput with_memory(PredictionInput input, double wanted, int64_t context,
                            const std::function<double(const MemoryPlan&)>& hit_share_of) {
  const MemoryPlan plan = input.plan;
  const auto set = [&](int64_t slots) {
    input.plan = with_slots(plan, slots);
    input.hit_share = hit_share_of(input.plan);
    return predict_decode(input, context).tokens_per_s();
  };
  int64_t too_few = plan.slots;
  int64_t enough = plan.needs.expert_count;
  while (enough - too_few > 1) {
    const int64_t middle = too_few + (enough - too_few) / 2;
    (set(middle) >= wanted ? enough : too_few) = middle;
  }
  set(enough);
  return input;
}

}  // namespace

std::vector<Advice> advise(const PredictionInput& input, int64_t context,
                           const std::function<double(const MemoryPlan&)>& hit_share_of) {
  const double now = predict_decode(input, context).tokens_per_s();
  std::vector<Advice> list;
  const auto add = [&](std::string change, const PredictionInput& changed) {
    const double then = predict_decode(changed, context).tokens_per_s();
    if (then >= kLeastFactor * now) list.push_back({std::move(change), then, then / now});
  };
  if (input.plan.streamed) {
    const PredictionInput more = with_memory(input, kWantedFactor * now, context, hit_share_of);
    add(fmt::format("{:.1f} GB of memory{}", static_cast<double>(more.plan.total_bytes()) * 1e-9,
                    more.plan.streamed ? "" : ", all experts in it"),
        more);
    PredictionInput faster = input;
    for (DriveRate& rate : faster.drive->random) rate.bytes_per_second *= 2;
    faster.drive->sequential_bytes_per_second *= 2;
    add("a drive twice as fast", faster);
  }
  PredictionInput threads = input;
  threads.rates = with_threads(input, 2, context);
  add("twice the processor cores", threads);
  std::stable_sort(list.begin(), list.end(),
                   [](const Advice& a, const Advice& b) { return a.factor > b.factor; });
  return list;
}

}  // namespace motley
