#include "engine/scheduler.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "base/clock.h"

namespace motley {

std::string_view finish_reason_name(FinishReason reason) {
  switch (reason) {
    case FinishReason::kStopToken:
      return "stop";
    case FinishReason::kLength:
      return "length";
    case FinishReason::kContextFull:
      return "context full";
    case FinishReason::kCancelled:
      return "cancelled";
    case FinishReason::kFailed:
      return "failed";
  }
  return "unknown";
}

Scheduler::Scheduler(Engine& engine, SchedulerOptions options)
    : engine_(engine), options_(options), runner_(engine), drafter_(engine, runner_) {
  MOTLEY_CHECK(options.prefill_chunk > 0, "a prefill chunk needs at least one row");
  MOTLEY_CHECK(options.drafts >= 0 && options.drafts <= engine.options().draft_tokens,
               "the engine keeps no room for as many drafts");
  runner_.keep_hidden(options.drafts > 0);
  drafter_.replace_guesses(options_.replace_guess);
}

Status Scheduler::submit(Sequence& sequence, GenerationRequest request,
                         GenerationListener& listener) {
  MOTLEY_RETURN_IF_ERROR(request.sampling.validate(engine_.decoder().vocab_size()));
  const auto prompt = static_cast<int64_t>(sequence.tokens().size());
  if (prompt >= engine_.context_length()) {
    return resource_exhausted(
        fmt::format("the prompt has {} tokens, the context holds {} including the answer", prompt,
                    engine_.context_length()));
  }
  MOTLEY_CHECK(!sequence.pending().empty(), "sync() leaves at least one token to compute");
  Sampler sampler(request.sampling);
  sampler.observe_prompt(sequence.tokens());
  Request& added = requests_.emplace_back(Request{.sequence = &sequence,
                                                  .params = std::move(request),
                                                  .listener = &listener,
                                                  .sampler = std::move(sampler)});
  added.prompt_total = std::ssize(sequence.pending());
  added.stats.reused_tokens = sequence.computed_tokens();
  return Status::ok();
}

void Scheduler::add_rows(Request& request, RowRole role, int64_t rows, bool wants_logits) {
  Sequence& sequence = *request.sequence;
  const auto tokens = sequence.pending().first(static_cast<size_t>(rows));
  request.role = role;
  request.first_row = batch_.rows();
  request.logit_row = wants_logits ? static_cast<int32_t>(logit_rows_.size()) : -1;
  if (role == RowRole::kDecode && !request.drafts.empty()) {
    std::vector<int32_t> guessed(tokens.begin(), tokens.end());
    guessed.insert(guessed.end(), request.drafts.begin(), request.drafts.end());
    batch_.add_tentative(sequence.state(), guessed, {sequence.computed_tokens()});
    rows = std::ssize(guessed);
  } else {
    batch_.add(role, sequence.state(), tokens, {sequence.computed_tokens()});
  }
  request.step_rows = request.final_rows = rows;
  request.step_drafts = {};
  const auto last = static_cast<int32_t>(batch_.rows()) - 1;
  const auto first = role == RowRole::kDecode ? static_cast<int32_t>(request.first_row) : last;
  for (int32_t row = first; wants_logits && row <= last; ++row) logit_rows_.push_back(row);
  in_step_.push_back(&request);
}

void Scheduler::form_batch() {
  batch_.clear();
  logit_rows_.clear();
  in_step_.clear();
  for (Request& request : requests_) {
    if (request.prompt_done) add_rows(request, RowRole::kDecode, 1, true);
  }
  for (Request& request : requests_) {
    if (request.prompt_done) continue;
    const auto pending = std::ssize(request.sequence->pending());
    const int64_t rows = std::min<int64_t>(pending, options_.prefill_chunk);
    if (batch_.counts.prefill > 0 && batch_.rows() + rows > options_.max_step_rows) break;
    add_rows(request, RowRole::kPrefill, rows, rows == pending);
  }
}

// The request whose prompt is better read layer by layer now, or null. Nobody must be generating:
// a sweep takes as long as the drive needs for the model.
Scheduler::Request* Scheduler::next_sweep() {
  for (const Request& request : requests_) {
    if (request.prompt_done) return nullptr;
  }
  Request& first = requests_.front();
  first.step_rows =
      runner_.rows_to_sweep(std::ssize(first.sequence->pending()), options_.prefill_chunk);
  return first.step_rows > 0 ? &first : nullptr;
}

void Scheduler::run_sweep(Request& request) {
  Sequence& sequence = *request.sequence;
  const int64_t rows = request.step_rows;
  const bool is_last = rows == std::ssize(sequence.pending());
  request.role = RowRole::kPrefill;
  request.first_row = -1;
  request.logit_row = is_last ? 0 : -1;
  in_step_ = {&request};
  const auto follow = [&](const ConstTensorView& hidden) {
    const DraftJob job{.sequence = &sequence, .hidden = hidden};
    return drafter_.run({&job, 1}, RowRole::kPrefill, options_.prefill_chunk, observer());
  };
  const auto keep_going = [&](int done_layers, int layers) {
    if (options_.is_interrupted && options_.is_interrupted()) return false;
    request.listener->on_prefill(request.stats.prompt_tokens + rows * done_layers / layers,
                                 request.prompt_total);
    return true;
  };
  const int64_t start_ns = engine_.context().clock.now_ns();
  const Status status =
      runner_.run_sweep({.state = sequence.state(),
                         .tokens = sequence.pending().first(static_cast<size_t>(rows)),
                         .first = sequence.computed_tokens(),
                         .chunk = options_.prefill_chunk,
                         .wants_logits = is_last,
                         .follow = follow,
                         .keep_going = keep_going},
                        observer(), &logits_);
  if (status.is_ok()) {
    // deliver() counts one chunk.
    request.stats.prefill_chunks += (rows - 1) / options_.prefill_chunk;
    deliver(request, seconds_since(engine_.context().clock, start_ns));
  } else if (status.code() == StatusCode::kCancelled) {
    sequence.invalidate();
    request.ending = {FinishReason::kCancelled, Status::ok()};
  } else {
    fail(request, status);
  }
}

void Scheduler::step() {
  for (Request& request : requests_) {
    if (!request.cancelled) continue;
    follow_rest(request);
    finish(request, FinishReason::kCancelled, Status::ok());
  }
  requests_.remove_if([](const Request& request) { return request.listener == nullptr; });
  if (requests_.empty()) return;
  if (Request* sweep = next_sweep()) {
    run_sweep(*sweep);
    finish_step();
    return;
  }
  form_batch();
  const int64_t start_ns = engine_.context().clock.now_ns();
  const Status status = runner_.run(batch_, logit_rows_, observer(), &logits_);
  const double step_s = seconds_since(engine_.context().clock, start_ns);
  for (Request* request : in_step_) {
    if (status.is_ok()) {
      deliver(*request, step_s);
    } else {
      fail(*request, status);
    }
  }
  if (options_.governor != nullptr) note_cost();
  finish_step();
}

// Ends requests only now: their sequences are no longer touched.
void Scheduler::finish_step() {
  if (options_.drafts > 0) draft();
  for (Request* request : in_step_) {
    if (request->ending) finish(*request, request->ending->reason, request->ending->status);
  }
  requests_.remove_if([](const Request& request) { return request.listener == nullptr; });
}

void Scheduler::deliver(Request& request, double step_s) {
  if (request.role == RowRole::kPrefill) {
    request.stats.prompt_tokens += request.step_rows;
    ++request.stats.prefill_chunks;
    request.stats.prefill_s += step_s;
    request.listener->on_prefill(request.stats.prompt_tokens, request.prompt_total);
    if (request.logit_row < 0) return;
    request.prompt_done = true;
  } else {
    request.stats.decode_s += step_s;
  }
  take_rows(request);
}

// Takes a token from the request's row, and from the next ones as long as it is the token that was
// guessed there.
void Scheduler::take_rows(Request& request) {
  const auto vocab = static_cast<size_t>(engine_.decoder().vocab_size());
  const size_t guesses = request.drafts.size();
  size_t taken = 0;
  size_t right = 0;
  for (bool goes_on = true; goes_on && taken <= guesses;) {
    const auto row = static_cast<size_t>(request.logit_row) + taken;
    const auto logits = std::span<const float>(logits_).subspan(row * vocab, vocab);
    const auto position = std::ssize(request.sequence->tokens());
    if (!std::all_of(logits.begin(), logits.end(), [](float x) { return std::isfinite(x); })) {
      return fail(request,
                  corrupt(fmt::format("the logits at position {} are not finite", position)));
    }
    request.listener->on_logits(logits, position);
    const std::optional<FinishReason> end = take_token(request, logits);
    if (end) request.ending = {*end, Status::ok()};
    goes_on = !end;
    if (taken < guesses) {
      const bool is_right = request.sequence->tokens().back() == request.drafts[taken];
      request.step_drafts.count(static_cast<int>(taken), is_right);
      right += is_right ? 1 : 0;
      goes_on = goes_on && is_right;
    }
    ++taken;
  }
  if (guesses == 0) return;
  ++request.step_drafts.by_accepted[right];
  request.stats.drafts += request.step_drafts;
  request.final_rows = static_cast<int64_t>(taken);
  request.drafts.clear();
  runner_.commit(request.sequence->state(), static_cast<int32_t>(taken), observer());
}

std::optional<FinishReason> Scheduler::take_token(Request& request, std::span<const float> logits) {
  const auto position = static_cast<int64_t>(request.sequence->tokens().size());
  const SampledToken token = request.sampler.sample(logits, position, request.params.top_logprobs);
  const std::vector<int32_t>& stops = request.params.stop_tokens;
  request.sequence->append(token.token);
  if (std::find(stops.begin(), stops.end(), token.token) != stops.end()) {
    return FinishReason::kStopToken;
  }
  ++request.stats.generated_tokens;
  if (!request.listener->on_token(token)) return FinishReason::kCancelled;
  if (request.params.max_new_tokens > 0 &&
      request.stats.generated_tokens >= request.params.max_new_tokens) {
    return FinishReason::kLength;
  }
  if (position + 1 >= engine_.context_length()) return FinishReason::kContextFull;
  return std::nullopt;
}

void Scheduler::fail(Request& request, const Status& status) {
  request.sequence->invalidate();
  request.ending = {FinishReason::kFailed, status};
}

void Scheduler::finish(Request& request, FinishReason reason, const Status& status) {
  GenerationListener* listener = request.listener;
  request.listener = nullptr;  // marks the request for removal
  listener->on_finish(reason, status, request.stats);
}

void Scheduler::run_until_idle() {
  while (!is_idle()) step();
}

void Scheduler::cancel_all() {
  for (Request& request : requests_) request.cancelled = true;
}

}  // namespace motley
