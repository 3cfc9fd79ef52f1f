// What the processor needs for a model's layers, measured on this machine.
//
// Values only; engine/plan/compute_probe.h measures them, engine/plan/rate_cache.h keeps them and
// engine/plan/prediction.h computes with them.
// Units: seconds, bytes a second, tokens. Thread rule: values.
#pragma once

#include <cstdint>
#include <vector>

namespace motley {

// Of one layer of a kind (engine/plan/layer_kinds.h), in the order of the kinds.
struct KindRates {
  // One decoded token with ModelRates::near_tokens before it.
  double decode_s = 0;              // everything but routed experts
  double decode_per_context_s = 0;  // more for each further token of context
  double experts_s = 0;             // its routed experts, together
  double expert_alone_s = 0;        // one of them by itself
  // A chunk of ModelRates::chunk_tokens at the beginning of a prompt.
  double prefill_s = 0;               // everything but routed experts
  double prefill_per_position_s = 0;  // more for each token before the chunk
  double prefill_experts_s = 0;
  friend bool operator==(const KindRates&, const KindRates&) = default;
};

struct ModelRates {
  int threads = 0;
  int64_t near_tokens = 0;
  int64_t chunk_tokens = 0;
  double head_s = 0;                // norm, head and embedding of one token
  int64_t head_bytes = 0;           // of the head
  double read_one_bytes_per_s = 0;  // from memory, by one thread
  double read_all_bytes_per_s = 0;  // by all of them
  std::vector<KindRates> kinds;
  friend bool operator==(const ModelRates&, const ModelRates&) = default;
};

}  // namespace motley
