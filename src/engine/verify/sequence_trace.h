// Everything verification looks at, computed by an engine for one list of tokens, through the same
// batches of prefill and decode rows that a generation uses.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "engine/step_runner.h"
#include "engine/verify/route_table.h"

namespace motley {

struct TraceRequest {
  std::vector<int32_t> prompt;
  std::vector<int32_t> continuation;  // decoded token by token after the prompt (teacher-forced)
  bool layers = false;                // keep every layer's output for the prompt
  int draft_steps = 0;                // > 0: run the first draft layer, and a chain this long
  int64_t prefill_chunk = 512;
  const RouteTable* forced_routes = nullptr;  // for choices decided by less than forced_below
  double forced_below = kNearTie;
};

struct SequenceTrace {
  int64_t vocab = 0;
  int64_t hidden = 0;
  int64_t forced_rows = 0;                 // choices taken from forced_routes
  std::vector<float> logits;               // [prompt, vocab]
  std::vector<std::vector<float>> layers;  // per layer [prompt, hidden]
  RouteTable routes;                       // trunk, then draft layers; prompt and continuation
  std::vector<float> decode_logits;        // [continuation, vocab]: before each of its tokens
  int32_t next_token = 0;                  // greedy token after the prompt
  std::vector<float> draft_logits;         // [prompt, vocab]
  std::vector<float> chain_logits;         // [draft_steps, vocab]

  std::span<const float> row(const std::vector<float>& rows, int64_t index) const {
    return std::span(rows).subspan(static_cast<size_t>(index * vocab), static_cast<size_t>(vocab));
  }
};

Result<SequenceTrace> trace_sequence(Engine& engine, const TraceRequest& request);

}  // namespace motley
