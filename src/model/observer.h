// What a step lets others see or decide: taps, per-layer outputs, state events, forced routing.
//
// Every method has a default that costs nothing. Views are valid during the call only.
// Thread rule: called from the thread that runs the step, after the stream is synchronised.
#pragma once

#include <cstdint>
#include <span>

#include "model/batch.h"
#include "ops/moe.h"
#include "spec/state_layout.h"
#include "tensor/partial_attention.h"
#include "tensor/tensor_view.h"

namespace motley {

// Tokens [begin, end) of a sequence.
struct TokenRange {
  GlobalPosition begin;
  GlobalPosition end;
};

class StepObserver {
 public:
  virtual ~StepObserver() = default;

  // Whether layer_output, router_logits and routing should be called; they force a synchronisation.
  virtual bool wants_activations() const { return false; }
  // Whether routing alone should be.
  virtual bool wants_routing() const { return wants_activations(); }

  // The residual stream after `layer` (drafts count on from the trunk's last), [rows, hidden].
  virtual void layer_output(int layer, const Batch& batch, const ConstTensorView& hidden) {
    (void)layer, (void)batch, (void)hidden;
  }

  // Router logits [rows, experts] before the choice. May return forced choices for
  // MoeOps::route_softmax ([rows, experts_per_token] int32, -1 = free), valid until the next call.
  virtual ConstTensorView router_logits(int layer, const Batch& batch,
                                        const ConstTensorView& logits) {
    (void)layer, (void)batch, (void)logits;
    return {};
  }

  virtual void routing(int layer, const Batch& batch, const Routing& routing) {
    (void)layer, (void)batch, (void)routing;
  }

  // The state of `layer` now covers `tokens` of `state`, and they will not change again.
  virtual void state_ready(int layer, StateKind kind, SequenceState& state, TokenRange tokens) {
    (void)layer, (void)kind, (void)state, (void)tokens;
  }
};

}  // namespace motley
