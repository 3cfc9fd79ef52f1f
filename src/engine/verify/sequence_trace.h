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
  // Taken where less than the limit of their kind decides.
  const ChoiceTables* forced = nullptr;
  double forced_routes_below = kNearTie;
  double forced_keys_below = kNearTie;
};

struct SequenceTrace {
  int64_t vocab = 0;
  int64_t hidden = 0;
  int64_t forced_rows = 0;                 // routes taken from TraceRequest::forced
  int64_t forced_keys = 0;                 // rows whose keys were
  std::vector<float> logits;               // [prompt, vocab]
  std::vector<std::vector<float>> layers;  // per layer [prompt, hidden]
  ChoiceTables choices;                    // trunk, then draft layers; prompt and continuation
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
