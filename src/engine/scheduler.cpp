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
    : engine_(engine), options_(options), runner_(engine) {
  MOTLEY_CHECK(options.prefill_chunk > 0, "a prefill chunk needs at least one row");
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

void Scheduler::form_batch() {
  batch_.clear();
  logit_rows_.clear();
  in_step_.clear();
  const auto add = [&](Request& request, RowRole role, int64_t rows, bool wants_logits) {
    const auto tokens = request.sequence->pending().first(static_cast<size_t>(rows));
    batch_.add(role, request.sequence->state(), tokens, {request.sequence->computed_tokens()});
    request.step_rows = rows;
    request.logit_row = -1;
    if (wants_logits) {
      request.logit_row = static_cast<int32_t>(logit_rows_.size());
      logit_rows_.push_back(static_cast<int32_t>(batch_.rows() - 1));
    }
    in_step_.push_back(&request);
  };
  for (Request& request : requests_) {
    if (request.prompt_done) add(request, RowRole::kDecode, 1, true);
  }
  for (Request& request : requests_) {
    if (request.prompt_done) continue;
    const auto pending = std::ssize(request.sequence->pending());
    const int64_t rows = std::min<int64_t>(pending, options_.prefill_chunk);
    if (batch_.counts.prefill > 0 && batch_.rows() + rows > options_.max_step_rows) break;
    add(request, RowRole::kPrefill, rows, rows == pending);
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
  request.logit_row = is_last ? 0 : -1;
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
                         .keep_going = keep_going},
                        observer(), &logits_);
  if (status.is_ok()) {
    // deliver() counts one chunk.
    request.stats.prefill_chunks += (rows - 1) / options_.prefill_chunk;
    deliver(request, seconds_since(engine_.context().clock, start_ns));
  } else {
    sequence.invalidate();
    const bool given_up = status.code() == StatusCode::kCancelled;
    finish(request, given_up ? FinishReason::kCancelled : FinishReason::kFailed,
           given_up ? Status::ok() : status);
  }
}

void Scheduler::step() {
  for (Request& request : requests_) {
    if (request.cancelled) finish(request, FinishReason::kCancelled, Status::ok());
  }
  requests_.remove_if([](const Request& request) { return request.listener == nullptr; });
  if (requests_.empty()) return;
  if (Request* sweep = next_sweep()) {
    run_sweep(*sweep);
    requests_.remove_if([](const Request& request) { return request.listener == nullptr; });
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
      request->sequence->invalidate();
      finish(*request, FinishReason::kFailed, status);
    }
  }
  requests_.remove_if([](const Request& request) { return request.listener == nullptr; });
}

void Scheduler::deliver(Request& request, double step_s) {
  if (!request.prompt_done) {
    request.stats.prompt_tokens += request.step_rows;
    ++request.stats.prefill_chunks;
    request.stats.prefill_s += step_s;
    request.listener->on_prefill(request.stats.prompt_tokens, request.prompt_total);
    if (request.logit_row < 0) return;
    request.prompt_done = true;
  } else {
    request.stats.decode_s += step_s;
  }
  const auto vocab = static_cast<size_t>(engine_.decoder().vocab_size());
  const auto logits = std::span<const float>(logits_).subspan(
      static_cast<size_t>(request.logit_row) * vocab, vocab);
  const auto position = std::ssize(request.sequence->tokens());
  if (!std::all_of(logits.begin(), logits.end(), [](float x) { return std::isfinite(x); })) {
    request.sequence->invalidate();
    finish(request, FinishReason::kFailed,
           corrupt(fmt::format("the logits at position {} are not finite", position)));
    return;
  }
  request.listener->on_logits(logits, position);
  (void)take_token(request, logits);
}

bool Scheduler::take_token(Request& request, std::span<const float> logits) {
  const auto position = static_cast<int64_t>(request.sequence->tokens().size());
  const SampledToken token = request.sampler.sample(logits, position, request.params.top_logprobs);
  const std::vector<int32_t>& stops = request.params.stop_tokens;
  request.sequence->append(token.token);
  if (std::find(stops.begin(), stops.end(), token.token) != stops.end()) {
    finish(request, FinishReason::kStopToken, Status::ok());
    return false;
  }
  ++request.stats.generated_tokens;
  if (!request.listener->on_token(token)) {
    finish(request, FinishReason::kCancelled, Status::ok());
    return false;
  }
  if (request.params.max_new_tokens > 0 &&
      request.stats.generated_tokens >= request.params.max_new_tokens) {
    finish(request, FinishReason::kLength, Status::ok());
    return false;
  }
  if (position + 1 >= engine_.context_length()) {
    finish(request, FinishReason::kContextFull, Status::ok());
    return false;
  }
  return true;
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
