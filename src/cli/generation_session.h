// One conversation on one sequence: hands the full token list over and runs the step loop.
//
// Ownership: engine and text model outlive it. Thread rule: one thread.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/progress.h"
#include "base/signals.h"
#include "engine/scheduler.h"
#include "engine/stream_report.h"
#include "text/text_model.h"

namespace motley {

struct SessionOptions {
  GenerationRequest request;
  std::vector<std::string> stops;
  int64_t prefill_chunk = 512;
  int drafts = 0;                    // most of a step
  bool draft_auto = false;           // as many of them as pay
  ProgressOutput progress;           // of a long prompt
  StepObserver* observer = nullptr;  // of every step; null: nobody
};

struct GenerationOutcome {
  SyncReport sync;
  FinishReason reason = FinishReason::kCancelled;
  std::optional<std::string> matched_stop;
  std::string text;
  std::vector<SampledToken> tokens;
  GenerationStats stats;
  int64_t prompt_tokens = 0;  // all of the prompt, reused or computed
  StreamStretch stream;       // when experts are streamed
  std::string draft_choice;   // what draft_auto found by now
};

class GenerationSession {
 public:
  static Result<GenerationSession> create(Engine& engine, const TextModel& text,
                                          SessionOptions options);

  // Continues with `prompt`, the whole timeline so far. `on_text` gets text as it becomes final.
  // A Ctrl-C ends it before the next token with kCancelled. Errors: those of the scheduler.
  Result<GenerationOutcome> generate(std::span<const TokenId> prompt,
                                     const InterruptHandler& interrupt,
                                     const std::function<void(std::string_view)>& on_text);

 private:
  GenerationSession(Engine& engine, const TextModel& text, SessionOptions options,
                    Sequence sequence);
  Status check_prompt(std::span<const TokenId> prompt) const;

  Engine* engine_;
  const TextModel* text_;
  SessionOptions options_;
  Sequence sequence_;
  std::unique_ptr<DraftGovernor> governor_;  // draft_auto; learns over the whole conversation
};

// "prefill 12 tokens, 340.1 tok/s; decode 80 tokens, 55.2 tok/s; fast on cpu/avx2".
std::string stats_line(const GenerationStats& stats, std::string_view numerics);

// Tokens per second; the first token of an answer comes from the prefill and does not count.
double prefill_rate(const GenerationStats& stats);
double decode_rate(const GenerationStats& stats);

}  // namespace motley
