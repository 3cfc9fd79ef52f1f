// Who is in which slot of the memory for streamed experts.
//
// One pool of equal slots serves the whole model. A miss takes an empty slot, else that of the
// expert with the lowest score over all layers that hold more than their floor; a layer may always
// give up its own. This is book-keeping only: the caller moves the bytes, in the order of the plan.
// Deterministic: no clock, no randomness, ties by layer and expert.
// Cost: O(wanted x (log experts + log layers)); no allocation once wanted has had its largest size.
// Ownership: owns the policy. Thread rule: one thread.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "base/status.h"
#include "experts/cache/eviction_policy.h"
#include "experts/cache/victim_index.h"

namespace motley {

struct SlotAssignment {
  int32_t expert = 0;
  int32_t slot = 0;
  bool hit = false;
  std::optional<CachedExpert> evicted;  // who had the slot; never of a hit
};

struct CachePlan {
  std::vector<SlotAssignment> experts;  // in the order of `wanted`
  int hits = 0;
  int evictions = 0;
};

struct CacheCounts {
  int64_t uses = 0;  // experts wanted by plan()
  int64_t hits = 0;
  int64_t evictions = 0;    // by plan()
  int64_t taken_ahead = 0;  // slots given by admit_ahead()
};

// kInvalidArgument, or kResourceExhausted with the arithmetic when the floors do not fit.
Status check_cache_shape(const CacheShape& shape);

class ExpertCache {
 public:
  // REQUIRES: check_cache_shape is ok, and the policy was made for this shape.
  ExpertCache(const CacheShape& shape, std::unique_ptr<EvictionPolicy> policy);

  // Gives every wanted expert a slot and counts one step of `layer`. None of them is evicted before
  // the next plan(). More than largest_step() experts push other layers below their floor, as few
  // as possible. Valid until the next call. REQUIRES: wanted is distinct, ascending; at most slots
  // minus pinned experts of others.
  const CachePlan& plan(int layer, std::span<const int32_t> wanted);

  // A sweep that passes the slots by (prefill): learns heat, admits nothing.
  void record_only(int layer, std::span<const int32_t> wanted);

  // A slot for an expert that will be needed soon: an empty one, or that of the lowest score;
  // nullopt when only floors, held or pinned experts are left, or when it is in a slot already. Not
  // counted as a use.
  std::optional<SlotAssignment> admit_ahead(int layer, int expert);

  // The read into the expert's slot failed or was given up: the slot is empty again, and a pin is
  // gone. Nothing happens when it is in no slot.
  void release(int layer, int expert);

  // A pinned expert keeps its slot whatever is planned (a read is in flight). REQUIRES: in a slot.
  void set_pinned(int layer, int expert, bool pinned);

  std::optional<int32_t> slot_of(int layer, int expert) const;
  int resident(int layer) const { return index_.resident(layer); }
  int empty_slots() const { return static_cast<int>(free_.size()); }
  // The most experts of a step that leave every floor whole, without pins.
  int largest_step() const { return shape_.slots - (shape_.layers - 1) * shape_.floor; }
  const CacheShape& shape() const { return shape_; }
  const CacheCounts& counts() const { return counts_; }
  const EvictionPolicy& policy() const { return *policy_; }
  EvictionPolicy& policy() { return *policy_; }

 private:
  struct Slot {
    CachedExpert owner;
    bool pinned = false;
    bool held = false;  // of the last plan

    bool may_leave() const { return owner.layer >= 0 && !pinned && !held; }
  };

  IndexedHeap& heap(int layer) { return index_.of(layer); }
  Slot& slot(int32_t index) { return slots_[static_cast<size_t>(index)]; }
  std::optional<CachedExpert> victim(int layer) const;
  // An empty slot or that of `lowest`, for an expert that no step asked for.
  SlotAssignment admit(int layer, int expert, const std::optional<CachedExpert>& lowest);
  // Frees the slot of `owner` without putting it on the free list.
  int32_t evict(const CachedExpert& owner);
  void occupy(int32_t index, const CachedExpert& owner);
  // The experts of the last plan may leave from now on.
  void let_go();
  void refresh_layer(int layer);
  void refresh_keys();

  CacheShape shape_;
  std::unique_ptr<EvictionPolicy> policy_;
  std::vector<int32_t> slot_of_;  // by shape index, -1: in none
  std::vector<Slot> slots_;
  std::vector<int32_t> free_;  // taken from the back
  VictimIndex index_;
  uint64_t generation_ = 0;
  std::vector<uint8_t> hit_;
  int planned_layer_ = -1;
  CachePlan plan_;
  CacheCounts counts_;
};

}  // namespace motley
