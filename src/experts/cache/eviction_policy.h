// Which expert should leave when a slot is needed: the rule behind ExpertCache.
//
// A policy sees every step (the distinct experts that one call wants of one layer) and gives each
// expert a key; the lowest leaves first. Keys of one layer keep their order while nothing is used,
// which is what lets the cache hold them in heaps; over layers, shared_score compares.
// No policy has a clock: time is counted in steps, so that a replay is the run.
// Ownership: a policy owns its tables. Thread rule: one thread, that of its cache.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string_view>
#include <vector>

#include "experts/cache/eviction_key.h"

namespace motley {

// One pool of `slots` equal slots for `layers` layers of `experts` experts each.
struct CacheShape {
  int layers = 0;
  int experts = 0;
  int slots = 0;
  int floor = 0;  // slots that a layer may always keep, usually its experts per token

  size_t index(int layer, int expert) const {
    return static_cast<size_t>(layer) * static_cast<size_t>(experts) + static_cast<size_t>(expert);
  }
  size_t size() const { return index(layers, 0); }
};

class EvictionPolicy {
 public:
  virtual ~EvictionPolicy() = default;

  virtual std::string_view name() const = 0;
  // `layer` computed with `wanted` (distinct, ascending); hit[i]: wanted[i] was in a slot before.
  virtual void step(int layer, std::span<const int32_t> wanted, std::span<const uint8_t> hit) = 0;
  // The same of a sweep that passed the slots by: learn, but treat nothing as loaded.
  virtual void record(int layer, std::span<const int32_t> wanted) = 0;
  // Also of experts in no slot. Changes only with a use of that expert or with generation().
  virtual EvictionKey key(int layer, int expert) const = 0;
  // The score of a key of `layer`, as it compares with those of other layers now.
  virtual double shared_score([[maybe_unused]] int layer, const EvictionKey& key) const {
    return key.score;
  }
  // Changes when all keys changed at once.
  virtual uint64_t generation() const { return 0; }
};

// Least recently used.
std::unique_ptr<EvictionPolicy> make_lru_policy(const CacheShape& shape);
// Least frequently used since the start, evicted experts remembered; ties: least recently used.
std::unique_ptr<EvictionPolicy> make_lfu_policy(const CacheShape& shape);

}  // namespace motley
