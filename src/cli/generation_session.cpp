#include "cli/generation_session.h"

#include <fmt/format.h>

#include <algorithm>
#include <memory>

#include "engine/text_generation.h"

namespace motley {
namespace {

double rate(double tokens, double seconds) {
  return seconds > 0 ? tokens / seconds : 0;
}

}  // namespace

double prefill_rate(const GenerationStats& stats) {
  return rate(static_cast<double>(stats.prompt_tokens), stats.prefill_s);
}

double decode_rate(const GenerationStats& stats) {
  return rate(static_cast<double>(std::max<int64_t>(stats.generated_tokens - 1, 0)),
              stats.decode_s);
}

std::string stats_line(const GenerationStats& stats, std::string_view numerics) {
  return fmt::format("prefill {} tokens, {:.1f} tok/s; decode {} tokens, {:.1f} tok/s; {}",
                     stats.prompt_tokens, prefill_rate(stats), stats.generated_tokens,
                     decode_rate(stats), numerics);
}

GenerationSession::GenerationSession(Engine& engine, const TextModel& text, SessionOptions options,
                                     Sequence sequence)
    : engine_(&engine), text_(&text), options_(std::move(options)), sequence_(std::move(sequence)) {
  if (options_.draft_auto) governor_ = std::make_unique<DraftGovernor>();
}

Result<GenerationSession> GenerationSession::create(Engine& engine, const TextModel& text,
                                                    SessionOptions options) {
  MOTLEY_ASSIGN_OR_RETURN(Sequence sequence, engine.create_sequence());
  return GenerationSession(engine, text, std::move(options), std::move(sequence));
}

Status GenerationSession::check_prompt(std::span<const TokenId> prompt) const {
  if (prompt.empty()) return invalid_argument("the prompt is empty");
  const int64_t vocab = engine_->spec().vocab_size;
  for (const TokenId token : prompt) {
    if (token < vocab) continue;
    return corrupt(
        fmt::format("token {} of the prompt is beyond the model's vocabulary of {}; "
                    "tokenizer.json belongs to another model",
                    token, vocab));
  }
  return Status::ok();
}

Result<GenerationOutcome> GenerationSession::generate(
    std::span<const TokenId> prompt, const InterruptHandler& interrupt,
    const std::function<void(std::string_view)>& on_text) {
  MOTLEY_RETURN_IF_ERROR(check_prompt(prompt));
  GenerationOutcome outcome;
  outcome.sync = sequence_.sync(prompt);
  outcome.prompt_tokens = std::ssize(prompt);
  ProgressBar bar(engine_->context().clock,
                  {.label = "prefill",
                   .total = static_cast<uint64_t>(outcome.sync.pending_tokens),
                   .unit = ProgressUnit::kItems,
                   .item_name = "tokens"},
                  options_.progress);
  TextGenerationOptions text_options;
  text_options.stops = options_.stops;
  text_options.on_text = on_text;
  text_options.on_prefill = [&](int64_t done, int64_t total) {
    bar.advance(static_cast<uint64_t>(done) - bar.done());
    if (done == total) bar.finish();
  };
  TextGeneration generation(text_->tokenizer, std::move(text_options));
  SchedulerOptions scheduler_options;
  scheduler_options.prefill_chunk = options_.prefill_chunk;
  scheduler_options.observer = options_.observer;
  scheduler_options.drafts = options_.drafts;
  scheduler_options.governor = governor_.get();
  scheduler_options.is_interrupted = [&] { return interrupt.interrupted(); };
  Scheduler scheduler(*engine_, scheduler_options);
  MOTLEY_RETURN_IF_ERROR(scheduler.submit(sequence_, options_.request, generation));
  const StreamMeter meter(*engine_);
  while (!scheduler.is_idle()) {
    if (interrupt.interrupted()) scheduler.cancel_all();
    scheduler.step();
  }
  MOTLEY_RETURN_IF_ERROR(generation.status());
  outcome.reason = generation.reason();
  outcome.matched_stop = generation.matched_stop();
  outcome.text = generation.text();
  outcome.tokens = generation.tokens();
  outcome.stats = generation.stats();
  if (governor_ != nullptr) outcome.draft_choice = governor_->summary(options_.drafts);
  outcome.stream = meter.stretch(outcome.stats.prompt_tokens + outcome.stats.generated_tokens);
  return outcome;
}

}  // namespace motley
