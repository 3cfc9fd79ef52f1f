// What a step lets others see or decide: taps, per-layer outputs, state events, forced routing.
//
// Every method has a default that costs nothing. Views are valid during the call only.
// Thread rule: called from the thread that runs the step, after the stream is synchronised.
#pragma once

#include <cstdint>
#include <span>

#include "model/batch.h"
#include "ops/latent_attention.h"
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

// What a router chooses by.
struct RouterScores {
  ConstTensorView logits;  // [rows, experts]
  const MoeSpec& moe;
  ConstTensorView correction_bias;  // [experts] float32; empty for a softmax
};

// What an indexer chooses by, for some rows of the batch.
struct IndexScoresView {
  int64_t first_row = 0;       // of the batch
  ConstTensorView scores;      // [rows, >= the most candidates]
  ConstTensorView candidates;  // [rows] int32: how many scores of a row count
  int64_t top_k = 0;           // how many of them are chosen
  int64_t width = 0;           // most keys that a row then sees
};

class StepObserver {
 public:
  virtual ~StepObserver() = default;

  // Whether layer_output, router_scores, routing, index_scores and key_selection should be called;
  // they force a synchronisation.
  virtual bool wants_activations() const { return false; }
  // Whether routing alone should be.
  virtual bool wants_routing() const { return wants_activations(); }

  // The residual stream after `layer` (drafts count on from the trunk's last), [rows, hidden].
  virtual void layer_output(int layer, const Batch& batch, const ConstTensorView& hidden) {
    (void)layer, (void)batch, (void)hidden;
  }

  // Before the choice of experts. May return forced choices for MoeOps::route_softmax or
  // route_sigmoid ([rows, experts_per_token] int32, -1 = free), valid until the next call.
  virtual ConstTensorView router_scores(int layer, const Batch& batch, const RouterScores& scores) {
    (void)layer, (void)batch, (void)scores;
    return {};
  }

  virtual void routing(int layer, const Batch& batch, const Routing& routing) {
    (void)layer, (void)batch, (void)routing;
  }

  // Before the choice of keys. May return forced ones: positions [rows, scores.width] int32,
  // ascending, -1 behind the last, all of it -1 where free; valid until the next call.
  virtual ConstTensorView index_scores(int layer, const Batch& batch,
                                       const IndexScoresView& scores) {
    (void)layer, (void)batch, (void)scores;
    return {};
  }
  // What the indexer of `layer` chose for all rows.
  virtual void key_selection(int layer, const Batch& batch, const KeySelection& selection) {
    (void)layer, (void)batch, (void)selection;
  }

  // The state of `layer` now covers `tokens` of `state`, and they will not change again.
  virtual void state_ready(int layer, StateKind kind, SequenceState& state, TokenRange tokens) {
    (void)layer, (void)kind, (void)state, (void)tokens;
  }
};

}  // namespace motley
