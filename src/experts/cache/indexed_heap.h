// A heap of ids 0 .. n-1 with the lowest key on top, in which any id can be moved or removed.
//
// Equal keys: the lower id is on top, so the order is total and the same everywhere.
// Cost: set and remove O(log size), no allocation after construction.
// Thread rule: one thread.
#pragma once

#include <cstdint>
#include <vector>

#include "base/check.h"
#include "experts/cache/eviction_key.h"

namespace motley {

class IndexedHeap {
 public:
  explicit IndexedHeap(int ids) : place_(static_cast<size_t>(ids), kAbsent) {
    heap_.reserve(static_cast<size_t>(ids));
  }

  bool empty() const { return heap_.empty(); }
  int size() const { return static_cast<int>(heap_.size()); }
  bool contains(int id) const { return place_[static_cast<size_t>(id)] != kAbsent; }
  // REQUIRES: not empty.
  int top() const { return heap_.front().id; }
  const EvictionKey& top_key() const { return heap_.front().key; }

  // Puts `id` in, or gives it another key.
  void set(int id, const EvictionKey& key) {
    int32_t& place = place_[static_cast<size_t>(id)];
    if (place == kAbsent) {
      place = static_cast<int32_t>(heap_.size());
      heap_.push_back({key, id});
    } else {
      heap_[static_cast<size_t>(place)].key = key;
    }
    settle(static_cast<size_t>(place));
  }

  // Nothing happens when `id` is not in.
  void remove(int id) {
    const int32_t place = place_[static_cast<size_t>(id)];
    if (place == kAbsent) return;
    const Entry last = heap_.back();
    heap_.pop_back();
    place_[static_cast<size_t>(id)] = kAbsent;
    if (last.id == id) return;
    put(static_cast<size_t>(place), last);
    settle(static_cast<size_t>(place));
  }

  // Calls `visit(id)` for every id in, in no particular order.
  template <typename Visit>
  void for_each(Visit visit) const {
    for (const Entry& entry : heap_) visit(entry.id);
  }

 private:
  static constexpr int32_t kAbsent = -1;

  struct Entry {
    EvictionKey key;
    int32_t id = 0;

    bool before(const Entry& other) const {
      return key < other.key || (key == other.key && id < other.id);
    }
  };

  void put(size_t place, const Entry& entry) {
    heap_[place] = entry;
    place_[static_cast<size_t>(entry.id)] = static_cast<int32_t>(place);
  }

  void settle(size_t place) {
    const Entry entry = heap_[place];
    while (place > 0 && entry.before(heap_[(place - 1) / 2])) {
      put(place, heap_[(place - 1) / 2]);
      place = (place - 1) / 2;
    }
    while (true) {
      size_t child = 2 * place + 1;
      if (child >= heap_.size()) break;
      if (child + 1 < heap_.size() && heap_[child + 1].before(heap_[child])) ++child;
      if (!heap_[child].before(entry)) break;
      put(place, heap_[child]);
      place = child;
    }
    put(place, entry);
  }

  std::vector<Entry> heap_;
  std::vector<int32_t> place_;
};

}  // namespace motley
