// Which expert leaves a pool of slots that layers share, each with a floor.
//
// Holds how many slots each layer has, and the experts that may leave, lowest key first. Keys of
// one layer compare as they are; over layers they compare by the shared score that callers give.
// Cost: O(log experts + log layers). Thread rule: one thread.
#pragma once

#include <optional>
#include <vector>

#include "base/function_ref.h"
#include "experts/cache/indexed_heap.h"

namespace motley {

struct CachedExpert {
  int32_t layer = -1;
  int32_t expert = -1;

  friend bool operator==(const CachedExpert&, const CachedExpert&) = default;
};

class VictimIndex {
 public:
  using SharedScore = FunctionRef<double(int layer, const EvictionKey& key)>;

  VictimIndex(int layers, int experts, int floor)
      : floor_(floor),
        resident_(static_cast<size_t>(layers), 0),
        heaps_(static_cast<size_t>(layers), IndexedHeap(experts)),
        layers_(layers) {}

  // The experts of a layer that may leave. After changes: refresh(layer).
  IndexedHeap& of(int layer) { return heaps_[static_cast<size_t>(layer)]; }
  // Slots of a layer, with experts that may not leave. After changes: refresh(layer).
  int& resident(int layer) { return resident_[static_cast<size_t>(layer)]; }
  int resident(int layer) const { return resident_[static_cast<size_t>(layer)]; }

  // Puts `layer` where its lowest expert belongs among the layers that are above their floor.
  void refresh(int layer, SharedScore shared) {
    const IndexedHeap& experts = of(layer);
    if (experts.empty() || resident(layer) <= floor_) {
      layers_.remove(layer);
    } else {
      const EvictionKey& key = experts.top_key();
      layers_.set(layer, {shared(layer, key), key.tie});
    }
  }

  // The lowest of `layer` and of all layers above their floor; a tie is the layer's own.
  std::optional<CachedExpert> lowest(int layer, SharedScore shared) const {
    const IndexedHeap& own = heaps_[static_cast<size_t>(layer)];
    if (own.empty() && layers_.empty()) return std::nullopt;
    if (layers_.empty()) return top_of(layer);
    if (own.empty()) return top_of(layers_.top());
    const EvictionKey own_key{shared(layer, own.top_key()), own.top_key().tie};
    return top_of(layers_.top_key() < own_key ? layers_.top() : layer);
  }

  // Where all floors are reached: the lowest of the layer that has most.
  std::optional<CachedExpert> lowest_of_fullest() const {
    int fullest = -1;
    for (int layer = 0; layer < static_cast<int>(heaps_.size()); ++layer) {
      if (heaps_[static_cast<size_t>(layer)].empty()) continue;
      if (fullest < 0 || resident(layer) > resident(fullest)) fullest = layer;
    }
    return fullest < 0 ? std::nullopt : std::optional(top_of(fullest));
  }

 private:
  CachedExpert top_of(int layer) const { return {layer, heaps_[static_cast<size_t>(layer)].top()}; }

  int floor_ = 0;
  std::vector<int> resident_;
  std::vector<IndexedHeap> heaps_;
  IndexedHeap layers_;
};

}  // namespace motley
