// One timeline of tokens and the state computed for them.
//
// Callers hand over the full token list; sync() decides whether the state can be kept and says why.
// Linear-attention state cannot be truncated, so anything but an extension rebuilds.
// Ownership: owns its state; the engine outlives it. Thread rule: one thread at a time.
#pragma once

#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

#include "state/sequence_state.h"

namespace motley {

enum class SyncDecision { kExtend, kRebuild };

struct SyncReport {
  SyncDecision decision = SyncDecision::kRebuild;
  int64_t reused_tokens = 0;
  int64_t pending_tokens = 0;  // to be prefilled
  std::string_view reason;
};

class Sequence {
 public:
  explicit Sequence(SequenceState state) : state_(std::move(state)) {}

  // Makes `tokens` the timeline. At least one token stays pending, so that a step yields logits.
  SyncReport sync(std::span<const int32_t> tokens);
  // Adds a generated token; its state is computed by the next step.
  void append(int32_t token) { tokens_.push_back(token); }
  // After a failed step the state is undefined: the next sync rebuilds.
  void invalidate() { broken_ = true; }
  bool is_valid() const { return !broken_; }

  std::span<const int32_t> tokens() const { return tokens_; }
  int64_t computed_tokens() const { return state_.length(); }
  std::span<const int32_t> pending() const {
    return std::span(tokens_).subspan(static_cast<size_t>(state_.length()));
  }
  SequenceState& state() { return state_; }

 private:
  std::vector<int32_t> tokens_;
  SequenceState state_;
  bool broken_ = false;
};

}  // namespace motley
