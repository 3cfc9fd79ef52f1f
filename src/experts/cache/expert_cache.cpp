#include "experts/cache/expert_cache.h"

#include <fmt/format.h>

#include <algorithm>

namespace motley {
namespace {

constexpr int64_t kMostExperts = int64_t{1} << 24;  // of all layers together

}  // namespace

Status check_cache_shape(const CacheShape& shape) {
  if (shape.layers < 1 || shape.experts < 1 || shape.floor < 0 || shape.floor > shape.experts) {
    return invalid_argument(
        fmt::format("expert cache: {} layers, {} experts and a floor of {} make no cache",
                    shape.layers, shape.experts, shape.floor));
  }
  if (static_cast<int64_t>(shape.layers) * shape.experts > kMostExperts) {
    return invalid_argument(fmt::format("expert cache: {} x {} experts, at most {} are possible",
                                        shape.layers, shape.experts, kMostExperts));
  }
  const int64_t least = static_cast<int64_t>(shape.layers) * shape.floor;
  if (shape.slots < least) {
    return resource_exhausted(
        fmt::format("expert cache: {} slots, but {} layers with a floor of {} need {}", shape.slots,
                    shape.layers, shape.floor, least));
  }
  return Status::ok();
}

ExpertCache::ExpertCache(const CacheShape& shape, std::unique_ptr<EvictionPolicy> policy)
    : shape_(shape), policy_(std::move(policy)), index_(shape.layers, shape.experts, shape.floor) {
  const Status status = check_cache_shape(shape);
  MOTLEY_CHECK(status.is_ok(), status.message());
  // More slots than experts would stay empty for ever.
  shape_.slots = std::min(shape.slots, static_cast<int>(shape.size()));
  slot_of_.assign(shape_.size(), -1);
  slots_.resize(static_cast<size_t>(shape_.slots));
  for (int32_t i = shape_.slots; i-- > 0;) free_.push_back(i);
  generation_ = policy_->generation();
}

std::optional<int32_t> ExpertCache::slot_of(int layer, int expert) const {
  const int32_t index = slot_of_[shape_.index(layer, expert)];
  return index < 0 ? std::nullopt : std::optional(index);
}

std::optional<CachedExpert> ExpertCache::victim(int layer) const {
  const auto shared = [this](int each, const EvictionKey& key) {
    return policy_->shared_score(each, key);
  };
  return index_.lowest(layer, shared);
}

int32_t ExpertCache::evict(const CachedExpert& owner) {
  int32_t& entry = slot_of_[shape_.index(owner.layer, owner.expert)];
  const int32_t index = entry;
  entry = -1;
  slot(index) = {};
  --index_.resident(owner.layer);
  heap(owner.layer).remove(owner.expert);
  return index;
}

void ExpertCache::occupy(int32_t index, const CachedExpert& owner) {
  slot(index) = {owner, false, false};
  slot_of_[shape_.index(owner.layer, owner.expert)] = index;
  ++index_.resident(owner.layer);
}

void ExpertCache::refresh_layer(int layer) {
  const auto shared = [this](int each, const EvictionKey& key) {
    return policy_->shared_score(each, key);
  };
  index_.refresh(layer, shared);
}

void ExpertCache::refresh_keys() {
  if (generation_ == policy_->generation()) return;
  generation_ = policy_->generation();
  for (const Slot& each : slots_) {
    const auto& [layer, expert] = each.owner;
    if (each.may_leave()) heap(layer).set(expert, policy_->key(layer, expert));
  }
  for (int layer = 0; layer < shape_.layers; ++layer) refresh_layer(layer);
}

void ExpertCache::let_go() {
  if (planned_layer_ < 0) return;
  for (const SlotAssignment& each : plan_.experts) {
    Slot& holder = slot(each.slot);
    if (!holder.held) continue;  // released since
    holder.held = false;
    if (!holder.may_leave()) continue;
    heap(planned_layer_).set(each.expert, policy_->key(planned_layer_, each.expert));
  }
  refresh_layer(planned_layer_);
}

const CachePlan& ExpertCache::plan(int layer, std::span<const int32_t> wanted) {
  let_go();
  planned_layer_ = layer;
  plan_.experts.clear();
  plan_.hits = plan_.evictions = 0;
  hit_.clear();
  for (const int32_t expert : wanted) {
    const int32_t index = slot_of_[shape_.index(layer, expert)];
    if (index >= 0) heap(layer).remove(expert);  // cannot leave in this call
    hit_.push_back(index >= 0);
    plan_.hits += index >= 0;
    plan_.experts.push_back({expert, index, index >= 0, std::nullopt});
  }
  refresh_layer(layer);
  for (SlotAssignment& each : plan_.experts) {
    if (each.hit) continue;
    if (!free_.empty()) {
      each.slot = free_.back();
      free_.pop_back();
    } else {
      each.evicted = victim(layer);
      if (!each.evicted) each.evicted = index_.lowest_of_fullest();
      MOTLEY_CHECK(each.evicted.has_value(), "a step wants more experts than there are slots");
      each.slot = evict(*each.evicted);
      refresh_layer(each.evicted->layer);
      ++plan_.evictions;
    }
    occupy(each.slot, {layer, each.expert});
  }
  policy_->step(layer, wanted, hit_);
  for (const SlotAssignment& each : plan_.experts) slot(each.slot).held = true;
  refresh_layer(layer);
  refresh_keys();
  counts_.uses += static_cast<int64_t>(wanted.size());
  counts_.hits += plan_.hits;
  counts_.evictions += plan_.evictions;
  return plan_;
}

void ExpertCache::record_only(int layer, std::span<const int32_t> wanted) {
  policy_->record(layer, wanted);
  for (const int32_t expert : wanted) {
    if (heap(layer).contains(expert)) heap(layer).set(expert, policy_->key(layer, expert));
  }
  refresh_layer(layer);
  refresh_keys();
}

std::optional<SlotAssignment> ExpertCache::admit_ahead(int layer, int expert) {
  if (slot_of(layer, expert)) return std::nullopt;
  if (!free_.empty()) return admit(layer, expert, std::nullopt);
  const std::optional<CachedExpert> lowest = victim(layer);
  if (!lowest) return std::nullopt;
  return admit(layer, expert, lowest);
}

SlotAssignment ExpertCache::admit(int layer, int expert,
                                  const std::optional<CachedExpert>& lowest) {
  SlotAssignment taken{expert, -1, false, lowest};
  if (lowest) {
    taken.slot = evict(*lowest);
    refresh_layer(lowest->layer);
  } else {
    taken.slot = free_.back();
    free_.pop_back();
  }
  occupy(taken.slot, {layer, expert});
  heap(layer).set(expert, policy_->key(layer, expert));
  refresh_layer(layer);
  ++counts_.taken_ahead;
  return taken;
}

void ExpertCache::release(int layer, int expert) {
  if (!slot_of(layer, expert)) return;
  free_.push_back(evict({layer, expert}));
  refresh_layer(layer);
}

void ExpertCache::set_pinned(int layer, int expert, bool pinned) {
  const std::optional<int32_t> index = slot_of(layer, expert);
  MOTLEY_CHECK(index.has_value(), "only an expert in a slot can be pinned");
  slot(*index).pinned = pinned;
  if (slot(*index).may_leave()) {
    heap(layer).set(expert, policy_->key(layer, expert));
  } else {
    heap(layer).remove(expert);
  }
  refresh_layer(layer);
}

}  // namespace motley
