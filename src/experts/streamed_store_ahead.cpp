// Reads of a StreamedExpertStore that no step waits for yet: the next layer of a sweep, and
// guesses.
#include <algorithm>
#include <utility>

#include "base/clock.h"
#include "experts/streamed_store.h"

namespace motley {

// A step wants what is being read ahead.
void StreamedExpertStore::join_read(int32_t index) {
  Slot& slot = slots_[static_cast<size_t>(index)];
  slot.wanted = true;
  ++waiting_;
  --ahead_;
  cache_.set_pinned(cache_layers_[static_cast<size_t>(slot.layer)], slot.expert, false);
  reads_.raise(static_cast<uint64_t>(index) * 2 + kGateUp, ReadPriority::kDemandGateUp);
  reads_.raise(static_cast<uint64_t>(index) * 2 + kDown, ReadPriority::kDemandDown);
}

void StreamedExpertStore::begin_sweep_layer(int layer) {
  collect(/*block=*/false);
  pin_layer(sweep_layer_, false);
  // A cache that does not hold a layer works in groups, whose experts must be able to leave.
  const bool is_first = sweep_layer_ < 0;
  const int experts = layout_.experts(layer);
  const bool holds_layer = cache_.largest_step() >= experts;
  sweep_layer_ = holds_layer ? layer : -1;
  if (!holds_layer) return;
  if (is_first) {
    drop_guesses();
    while (ahead_ > 0) collect(/*block=*/true);
  }
  drop_passed(layer);
  pin_layer(layer, true);
  if (is_first) read_layer_ahead(layer, cache_.largest_step());
  if (layer + 1 < layout_.layers()) read_layer_ahead(layer + 1, cache_.largest_step() - experts);
}

// A prompt may want few of a layer's experts: reads of the others must not pile up behind it, each
// with a slot that cannot be taken.
void StreamedExpertStore::drop_passed(int layer) {
  const auto is_passed = [&](int32_t index) {
    const Slot& slot = slots_[static_cast<size_t>(index)];
    return slot.layer < layer && !slot.wanted && slot.parts_waiting > 0;
  };
  for (const int32_t index : swept_) {
    if (is_passed(index)) cancel_reads(index);
  }
  for (const int32_t index : swept_) {
    while (is_passed(index)) collect(/*block=*/true);
  }
  std::erase_if(swept_,
                [&](int32_t index) { return slots_[static_cast<size_t>(index)].layer < layer; });
}

void StreamedExpertStore::cancel_reads(int32_t index) {
  reads_.cancel(static_cast<uint64_t>(index) * 2 + kGateUp);
  reads_.cancel(static_cast<uint64_t>(index) * 2 + kDown);
}

void StreamedExpertStore::end_sweep() {
  pin_layer(sweep_layer_, false);
  sweep_layer_ = -1;
  swept_.clear();
  while (ahead_ > 0) collect(/*block=*/true);  // no more than a layer
}

// Experts of `layer` that may stay whatever else is read. Those that are being read are pinned
// already, until they arrive.
void StreamedExpertStore::pin_layer(int layer, bool pinned) {
  if (layer < 0) return;
  const int cached = cache_layers_[static_cast<size_t>(layer)];
  for (int expert = 0; cached >= 0 && expert < layout_.experts(layer); ++expert) {
    const std::optional<int32_t> slot = cache_.slot_of(cached, expert);
    if (!slot || slots_[static_cast<size_t>(*slot)].parts_waiting > 0) continue;
    cache_.set_pinned(cached, expert, pinned);
  }
}

// At most `room` experts, which leaves whole the floors and what the current layer still wants.
void StreamedExpertStore::read_layer_ahead(int layer, int room) {
  if (cache_layers_[static_cast<size_t>(layer)] < 0) return;
  for (int expert = 0; expert < layout_.experts(layer) && room > 0; ++expert) {
    const auto slot = start_ahead(layer, expert, ReadPriority::kSweep);
    if (!slot) continue;
    swept_.push_back(*slot);
    --room;
  }
  reads_.start();
}

std::optional<int32_t> StreamedExpertStore::start_ahead(int layer, int32_t expert,
                                                        ReadPriority priority) {
  const int cached = cache_layers_[static_cast<size_t>(layer)];
  const std::optional<SlotAssignment> taken = cache_.admit_ahead(cached, expert);
  if (!taken) return std::nullopt;
  cache_.set_pinned(cached, expert, true);
  assign(taken->slot, layer, expert, /*wanted=*/false);
  submit(taken->slot, kGateUp, priority);
  submit(taken->slot, kDown, priority);
  return taken->slot;
}

void StreamedExpertStore::expect(int layer, std::span<const int32_t> likely, int per_row) {
  const int cached = cache_layers_[static_cast<size_t>(layer)];
  if (cached < 0) return;
  look_ahead_.expect(layer, likely, per_row);
  const int most = look_ahead_.most_reads(slot_bytes());
  const auto is_missing = [&](int32_t expert) { return !cache_.slot_of(cached, expert); };
  for (const int32_t expert : look_ahead_.chosen(most, is_missing)) {
    const auto slot = start_ahead(layer, expert, ReadPriority::kLookAhead);
    if (slot) guessed_.push_back(*slot);
  }
  reads_.start();
}

void StreamedExpertStore::drop_guesses() {
  for (const int32_t index : guessed_) {
    const Slot& slot = slots_[static_cast<size_t>(index)];
    if (!slot.wanted && slot.parts_waiting > 0) cancel_reads(index);
  }
  guessed_.clear();
}

void StreamedExpertStore::make_room(size_t wanted) {
  if (sweep_layer_ >= 0 || wanted + static_cast<size_t>(ahead_) <= slots_.size()) return;
  drop_guesses();
  while (ahead_ > 0) collect(/*block=*/true);
}

// A guess was dropped before it was known to be wanted.
void StreamedExpertStore::read_again(int32_t index) {
  Slot& slot = slots_[static_cast<size_t>(index)];
  slot.parts_waiting = 2;
  slot.failure = Status::ok();
  submit(index, kGateUp, ReadPriority::kDemandGateUp);
  submit(index, kDown, ReadPriority::kDemandDown);
  reads_.start();
}

// Learns how good the guesses about this layer were, and how much more could have been read.
void StreamedExpertStore::check_guesses(int layer, std::span<const int32_t> wanted) {
  const int64_t idle_since_ns = std::exchange(idle_since_ns_, 0);
  if (!look_ahead_.check(layer, wanted)) return;
  const ReadStats stats = reads_.stats();
  double busy_s = 0;
  for (const ReadStats::Drive& drive : stats.drives) busy_s = std::max(busy_s, drive.busy_seconds);
  look_ahead_.record_drive(stats.total_bytes(), busy_s);
  if (idle_since_ns > 0) look_ahead_.record_idle(seconds_since(context_.clock, idle_since_ns));
}

}  // namespace motley
