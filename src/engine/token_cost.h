// What one token costs, counted from the model's description: the arithmetic behind `inspect`,
// benchmarks and predictions.
//
// Thread rule: pure functions.
#pragma once

#include <cstdint>
#include <functional>

#include "io/loader.h"
#include "spec/model_spec.h"
#include "spec/state_layout.h"

namespace motley {

// Calls `visit` with every tensor of a layer, and with how many of its matrices one token meets:
// experts_per_token of the routed experts, else 1.
void visit_layer_tensors(const LayerSpec& layer,
                         const std::function<void(TensorHandle tensor, int matrices)>& visit);

struct ParameterCounts {
  int64_t total = 0;   // every tensor in use, draft layers included; a tied head counts once
  int64_t active = 0;  // met by one decoded token: the chosen experts, one embedding row; no drafts
  int64_t drafts = 0;  // of the draft layers
};
ParameterCounts count_parameters(const ModelSpec& spec);

struct TokenCost {
  // Of one decoded token: every matrix once, experts_per_token of the experts, an embedding row.
  int64_t weight_bytes = 0;
  int64_t state_fixed_bytes = 0;      // linear-attention state, read whole
  int64_t state_bytes_per_token = 0;  // of cache, for each token of context
  // Multiply-adds with weights, attention over the context not counted.
  int64_t decode_multiply_adds = 0;
  int64_t prefill_multiply_adds = 0;  // of a prompt token other than the last: no head

  // Bytes that a decoded token must read when `context` tokens are before it.
  int64_t decode_bytes(int64_t context) const {
    return weight_bytes + state_fixed_bytes + context * state_bytes_per_token;
  }
};
// `layout`: without draft layers.
TokenCost token_cost(const ModelSpec& spec, const LoadedWeights& weights,
                     const StateLayout& layout);

}  // namespace motley
