// What a cache of some layers would hold under another rule: ids and keys, no bytes.
//
// It remembers experts that the real cache has evicted, so it can tell what keeping them would have
// brought. The layers share its slots with a floor each, as they do in the real cache: what other
// layers take away between two steps is much of what tells rules apart.
// Cost: O(wanted x (log experts + log layers)) a step. Thread rule: one thread.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "base/function_ref.h"
#include "experts/cache/victim_index.h"

namespace motley {

class GhostCache {
 public:
  GhostCache(int layers, int experts, int slots, int floor)
      : free_(slots),
        largest_step_(slots - (layers - 1) * floor),
        experts_(experts),
        held_(static_cast<size_t>(layers) * static_cast<size_t>(experts), 0),
        index_(layers, experts, floor) {}

  // One step; key_of(i, hit) is the key of wanted[i] after it, whose score must compare over
  // layers. Returns the hits, or -1 when the step breaks the floors and so says nothing.
  int step(int layer, std::span<const int32_t> wanted,
           FunctionRef<EvictionKey(size_t, bool)> key_of) {
    if (static_cast<int>(wanted.size()) > largest_step_) return -1;
    const auto shared = [](int, const EvictionKey& key) { return key.score; };
    hit_.clear();
    int hits = 0;
    for (const int32_t expert : wanted) {
      hit_.push_back(held(layer, expert));
      hits += hit_.back();
      index_.of(layer).remove(expert);
    }
    index_.refresh(layer, shared);
    for (size_t i = 0; i < wanted.size(); ++i) {
      if (hit_[i] == 0) admit(layer, wanted[i], shared);
    }
    for (size_t i = 0; i < wanted.size(); ++i) {
      index_.of(layer).set(wanted[i], key_of(i, hit_[i] != 0));
    }
    index_.refresh(layer, shared);
    return hits;
  }

 private:
  uint8_t& held(int layer, int expert) {
    return held_[static_cast<size_t>(layer) * static_cast<size_t>(experts_) +
                 static_cast<size_t>(expert)];
  }

  void admit(int layer, int expert, VictimIndex::SharedScore shared) {
    if (free_ > 0) {
      --free_;
    } else {
      const auto victim = index_.lowest(layer, shared);
      MOTLEY_CHECK(victim.has_value(), "a ghost step within the floors finds a victim");
      held(victim->layer, victim->expert) = 0;
      index_.of(victim->layer).remove(victim->expert);
      --index_.resident(victim->layer);
      index_.refresh(victim->layer, shared);
    }
    held(layer, expert) = 1;
    ++index_.resident(layer);
  }

  int free_ = 0;
  int largest_step_ = 0;
  int experts_ = 0;
  std::vector<uint8_t> held_;
  VictimIndex index_;
  std::vector<uint8_t> hit_;
};

}  // namespace motley
