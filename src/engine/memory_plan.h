// How a memory budget is divided, before anything is allocated (R4).
//
// What must be in memory comes first: weights other than routed experts, the state of a sequence,
// activations, the process itself. What is left holds experts. If all of them fit, the model is
// resident; otherwise they are streamed through slots, of which every layer keeps as many as a
// token needs (the floor). Less than that is refused with the arithmetic.
// Thread rule: pure functions and values.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/status.h"
#include "spec/model_spec.h"
#include "spec/state_layout.h"
#include "topology/placement.h"

namespace motley {

// A size in bytes, or a share of something.
struct MemorySize {
  int64_t bytes = 0;
  double share = 0;  // in (0, 1]; counts when bytes is 0

  bool is_set() const { return bytes > 0 || share > 0; }
  int64_t of(int64_t whole_bytes) const;
};

struct MemoryNeeds {
  std::string model;        // for messages
  int64_t dense_bytes = 0;  // weights that are always in memory
  int64_t state_bytes = 0;  // of one sequence
  int64_t activation_bytes = 0;
  int64_t process_bytes = 0;  // program, tokenizer, buffers
  int64_t expert_bytes = 0;   // of all routed experts
  int64_t slot_bytes = 0;     // one expert as it lies in a slot, blocks included
  int64_t expert_count = 0;   // in all layers
  int expert_layers = 0;
  int experts_per_token = 0;

  static constexpr int64_t kSweepTokens = 8192;  // of a prompt that pass a layer together

  int64_t fixed_bytes() const {
    return dense_bytes + state_bytes + activation_bytes + process_bytes;
  }
  int64_t floor_slots() const { return int64_t{expert_layers} * experts_per_token; }
};

struct MemoryUse {
  int64_t tokens = 0;   // of the sequence whose state is counted
  int64_t rows = 0;     // most rows of a step
  bool drafts = false;  // draft layers run too: their experts need slots
};
MemoryNeeds memory_needs(const ModelSpec& spec, const Placement& placement,
                         const StateLayout& layout, const MemoryUse& use);

// Whether a prompt of `tokens` should go through the model layer by layer, each layer's experts
// read in one sweep (true), or chunk by chunk, each reading what it needs.
struct SweepChoice {
  double sweep_bytes = 0;  // predicted, with nothing in memory
  double chunks_bytes = 0;
  bool sweep = false;
};
SweepChoice choose_sweep(const MemoryNeeds& needs, int64_t tokens, int64_t chunk);

struct MemoryRequest {
  MemorySize budget;         // of usable_bytes when a share; not set: what the machine has free
  MemorySize expert_cache;   // the experts' share set by hand; of all expert bytes when a share
  int64_t usable_bytes = 0;  // that the machine and its control group still allow
  int64_t usable_total_bytes = 0;  // that they allow in total: no budget may exceed it
};

struct MemoryPlan {
  MemoryNeeds needs;
  int64_t budget_bytes = 0;
  bool streamed = false;  // some experts stay on the drive
  int64_t slots = 0;      // when streamed

  int64_t cache_bytes() const { return slots * needs.slot_bytes; }
  int64_t total_bytes() const {
    return needs.fixed_bytes() + (streamed ? cache_bytes() : needs.expert_bytes);
  }
  // "name  size  note" of each part, for the log.
  std::vector<std::string> lines() const;
};

// kResourceExhausted with the arithmetic when the floor does not fit, or when the budget exceeds
// the machine.
Result<MemoryPlan> plan_memory(const MemoryNeeds& needs, const MemoryRequest& request);

}  // namespace motley
