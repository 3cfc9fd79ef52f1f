// Owns the step loop: forms batches of rows from all running requests and advances them.
//
// A step holds one decode row per generating request and one prefill chunk per waiting request, as
// long as the row budget lasts, in order of arrival. A request's result does not depend on the
// others (R5).
//
// With drafts a request's decode rows are its pending token and guesses of what follows, which
// count only as far as the request's own sampler chooses the same tokens from their logits; the
// rest is rolled back. So neither tokens nor log-probabilities depend on drafts
// (docs/decisions/0019-drafts-share-the-noise.md).
// Thread rule: one thread; listeners are called from it.
#pragma once

#include <cstdint>
#include <functional>
#include <list>
#include <memory>
#include <optional>
#include <vector>

#include "engine/draft/draft_governor.h"
#include "engine/draft/draft_stats.h"
#include "engine/draft/drafter.h"
#include "engine/sampler.h"
#include "engine/step_runner.h"

namespace motley {

struct GenerationRequest {
  SamplingParams sampling;
  int64_t max_new_tokens = 0;        // 0: until a stop token or the end of the context
  std::vector<int32_t> stop_tokens;  // end the generation; not part of the output
  int top_logprobs = 0;
};

enum class FinishReason { kStopToken, kLength, kContextFull, kCancelled, kFailed };
std::string_view finish_reason_name(FinishReason reason);

struct GenerationStats {
  int64_t reused_tokens = 0;
  int64_t prompt_tokens = 0;  // prefilled
  int64_t prefill_chunks = 0;
  int64_t generated_tokens = 0;
  double prefill_s = 0;  // wall time of the steps that held a chunk of this request
  double decode_s = 0;
  DraftStats drafts;
};

// Told about a request's progress. Return false from on_token to cancel.
class GenerationListener {
 public:
  virtual ~GenerationListener() = default;
  virtual void on_prefill(int64_t done_tokens, int64_t total_tokens) {
    (void)done_tokens, (void)total_tokens;
  }
  virtual bool on_token(const SampledToken& token) = 0;
  virtual void on_finish(FinishReason reason, const Status& status,
                         const GenerationStats& stats) = 0;
  // Full next-token logits before sampling, for tests and verification.
  virtual void on_logits(std::span<const float> logits, int64_t position) {
    (void)logits, (void)position;
  }
};

struct SchedulerOptions {
  int64_t prefill_chunk = 512;   // rows of a prompt per step, kept exactly
  int64_t max_step_rows = 1024;  // bound on the rows of a step; at least one chunk always fits
  // Asked within steps that take long (a sweep); true: every request is cancelled.
  std::function<bool()> is_interrupted;
  int drafts = 0;  // most guesses of a request that a step verifies: at most the engine's
  // Decides how many of them; null: all. Outlives the scheduler.
  DraftGovernor* governor = nullptr;
  ReplaceGuess replace_guess;        // for tests; empty: guesses are the draft layer's
  StepObserver* observer = nullptr;  // of every step; null: nobody. Outlives the scheduler.
};

class Scheduler {
 public:
  Scheduler(Engine& engine, SchedulerOptions options);

  // Starts a generation that continues `sequence`, whose pending tokens are the prompt. Sequence
  // and listener outlive the request. kInvalidArgument for parameters out of range,
  // kResourceExhausted when the prompt exceeds the context, with the counts.
  Status submit(Sequence& sequence, GenerationRequest request, GenerationListener& listener);

  bool is_idle() const { return requests_.empty(); }
  // One step. A failing step ends the requests in it with kFailed; the others go on.
  void step();
  void run_until_idle();
  // Ends every request before its next token.
  void cancel_all();

 private:
  struct Request {
    Sequence* sequence;
    GenerationRequest params;
    GenerationListener* listener;
    Sampler sampler;
    GenerationStats stats;
    int64_t prompt_total = 0;
    bool prompt_done = false;
    bool cancelled = false;
    std::vector<int32_t> drafts;  // guesses of what follows the pending token
    // Hidden states of computed rows that the draft layer has not taken yet: it takes them when
    // it is next asked for a guess.
    std::vector<std::byte> unfollowed;
    // Of the current step.
    RowRole role = RowRole::kPrefill;
    int64_t first_row = -1;  // in the batch, -1: swept
    int32_t logit_row = -1;  // index among the step's logits, -1 for none
    int64_t step_rows = 0;
    int64_t final_rows = 0;  // of which became part of the sequence
    DraftStats step_drafts;
    struct Ending {
      FinishReason reason;
      Status status;
    };
    std::optional<Ending> ending;
  };

  Request* next_sweep();
  void run_sweep(Request& request);
  void form_batch();
  StepObserver& observer() { return options_.observer != nullptr ? *options_.observer : nobody_; }
  void add_rows(Request& request, RowRole role, int64_t rows, bool wants_logits);
  void deliver(Request& request, double step_s);
  void take_rows(Request& request);
  void fail(Request& request, const Status& status);
  void finish(Request& request, FinishReason reason, const Status& status);
  std::optional<FinishReason> take_token(Request& request, std::span<const float> logits);
  void finish_step();
  // scheduler_drafts.cpp
  int drafts_for(const Request& request) const;
  void draft();
  void note_cost();
  Status draft_role(RowRole role);
  DraftJob draft_job(Request& request);
  void follow_rest(Request& request);

  Engine& engine_;
  SchedulerOptions options_;
  StepRunner runner_;
  Drafter drafter_;
  StepObserver nobody_;
  std::list<Request> requests_;  // in order of arrival
  std::vector<Request*> in_step_;
  Batch batch_;
  std::vector<int32_t> logit_rows_;
  std::vector<float> logits_;
  // When guessing began, for the governor; 0: not after a step of decode rows alone.
  int64_t cycle_start_ns_ = 0;
  StreamStats cycle_start_;
};

}  // namespace motley
