#include "engine/soak.h"

#include <algorithm>
#include <cmath>
#include <memory>

#include <fmt/format.h>

#include "base/clock.h"
#include "engine/scheduler.h"

namespace motley {
namespace {

// A request in flight, or none. The scheduler holds references into it.
class Slot final : public GenerationListener {
 public:
  explicit Slot(Sequence sequence) : sequence_(std::move(sequence)) {}

  bool on_token(const SampledToken&) override { return ++generated_ != cancel_after_; }
  void on_finish(FinishReason reason, const Status& status, const GenerationStats& stats) override {
    busy_ = false;
    reason_ = reason;
    status_ = status;
    tokens_ = stats.prompt_tokens + stats.generated_tokens;
  }

  Status submit(Scheduler& scheduler, const std::vector<int32_t>& timeline,
                const GenerationRequest& request, int64_t cancel_after) {
    sequence_.sync(timeline);
    generated_ = 0;
    cancel_after_ = cancel_after;
    MOTLEY_RETURN_IF_ERROR(scheduler.submit(sequence_, request, *this));
    busy_ = has_result_ = true;
    return Status::ok();
  }

  bool busy() const { return busy_; }
  bool take_result() { return !busy_ && std::exchange(has_result_, false); }
  FinishReason reason() const { return reason_; }
  const Status& status() const { return status_; }
  int64_t tokens() const { return tokens_; }
  const Sequence& sequence() const { return sequence_; }

 private:
  Sequence sequence_;
  bool busy_ = false;
  bool has_result_ = false;
  int64_t generated_ = 0;
  int64_t cancel_after_ = -1;
  int64_t tokens_ = 0;
  FinishReason reason_ = FinishReason::kFailed;
  Status status_;
};

class Soak {
 public:
  Soak(Engine& engine, const SoakOptions& options)
      : engine_(engine),
        options_(options),
        scheduler_(engine, {.prefill_chunk = options.prefill_chunk,
                            .is_interrupted = options.is_interrupted}),
        start_ns_(engine.context().clock.now_ns()) {
    report_.allowed_growth_bytes = options.allowed_growth_bytes;
  }

  Result<SoakReport> run() {
    for (int i = 0; i < options_.requests_at_once; ++i) {
      MOTLEY_ASSIGN_OR_RETURN(Sequence sequence, engine_.create_sequence());
      slots_.push_back(std::make_unique<Slot>(std::move(sequence)));
    }
    while (elapsed_s() < options_.seconds && !interrupted()) {
      for (const auto& slot : slots_) {
        if (!slot->busy()) MOTLEY_RETURN_IF_ERROR(start(*slot));
      }
      scheduler_.step();
      take_results();
      MOTLEY_RETURN_IF_ERROR(sample_when_due());
    }
    scheduler_.cancel_all();
    scheduler_.run_until_idle();
    take_results();
    MOTLEY_RETURN_IF_ERROR(sample());
    return std::move(report_);
  }

 private:
  bool interrupted() const { return options_.is_interrupted && options_.is_interrupted(); }
  double elapsed_s() const { return seconds_since(engine_.context().clock, start_ns_); }
  double uniform() { return uniform_at(options_.seed, draws_++); }

  // Short ones are as likely per octave as long ones.
  int64_t length(int64_t most) {
    const double drawn = std::exp(uniform() * std::log(static_cast<double>(most) + 1));
    return std::clamp(static_cast<int64_t>(drawn), int64_t{1}, most);
  }

  // The first request of every slot is as long as any can be: what memory the longest needs is then
  // taken before the first half of the time is over, whatever lengths are drawn later.
  Status start_longest(Slot& slot) {
    const auto prompt =
        random_tokens(options_.max_prompt_tokens, engine_.decoder().vocab_size(), draws_++);
    GenerationRequest request;
    request.max_new_tokens = options_.max_new_tokens;
    return slot.submit(scheduler_, prompt, request, -1);
  }

  Status start(Slot& slot) {
    if (slot.sequence().tokens().empty()) return start_longest(slot);
    const int64_t room = options_.max_prompt_tokens;
    std::vector<int32_t> timeline;
    const auto before = slot.sequence().tokens();
    const bool continues = uniform() < 0.25 && std::ssize(before) < room;
    if (continues) timeline.assign(before.begin(), before.end());
    const int64_t added = length(room - std::ssize(timeline));
    const auto prompt = random_tokens(added, engine_.decoder().vocab_size(), draws_++);
    timeline.insert(timeline.end(), prompt.begin(), prompt.end());
    GenerationRequest request;
    request.max_new_tokens = length(options_.max_new_tokens);
    if (uniform() < 0.5) request.sampling = {.temperature = 0.8, .top_p = 0.95, .seed = draws_};
    const bool cancels = uniform() < 0.125;
    return slot.submit(scheduler_, timeline, request,
                       cancels ? length(request.max_new_tokens) : -1);
  }

  void take_results() {
    for (const auto& slot : slots_) {
      if (!slot->take_result()) continue;
      ++requests_;
      tokens_ += slot->tokens();
      report_.cancelled += slot->reason() == FinishReason::kCancelled;
      if (slot->reason() != FinishReason::kFailed) continue;
      if (report_.failed++ == 0) report_.first_failure = slot->status().message();
    }
  }

  Status sample_when_due() {
    const double every_s = options_.seconds / options_.samples;
    if (elapsed_s() < every_s * static_cast<double>(report_.samples.size() + 1))
      return Status::ok();
    return sample();
  }

  Status sample() {
    SoakSample now{.at_s = elapsed_s(), .requests = requests_, .tokens = tokens_};
    MOTLEY_ASSIGN_OR_RETURN(now.memory, read_process_memory());
    MOTLEY_ASSIGN_OR_RETURN(now.handles, read_process_handles());
    report_.samples.push_back(now);
    if (options_.progress) {
      options_.progress(fmt::format("{:.0f} of {:.0f} s, {} requests, {} tokens, {:.2f} GB",
                                    now.at_s, options_.seconds, requests_, tokens_,
                                    static_cast<double>(now.memory.resident_bytes) * 1e-9));
    }
    return Status::ok();
  }

  Engine& engine_;
  const SoakOptions& options_;
  Scheduler scheduler_;
  std::vector<std::unique_ptr<Slot>> slots_;
  int64_t start_ns_;
  uint64_t draws_ = 0;
  int64_t requests_ = 0;
  int64_t tokens_ = 0;
  SoakReport report_;
};

}  // namespace

Result<SoakReport> soak(Engine& engine, const SoakOptions& options) {
  if (!(options.seconds > 0) || options.samples < 2 || options.requests_at_once < 1 ||
      options.max_prompt_tokens < 1 || options.max_new_tokens < 1) {
    return invalid_argument("a soak needs time, two samples, and requests with tokens");
  }
  const int64_t tokens = options.max_prompt_tokens + options.max_new_tokens;
  if (tokens > engine.context_length()) {
    return invalid_argument(
        fmt::format("{} prompt and {} generated tokens exceed the context of {}",
                    options.max_prompt_tokens, options.max_new_tokens, engine.context_length()));
  }
  return Soak(engine, options).run();
}

}  // namespace motley
