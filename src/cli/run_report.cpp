#include "cli/run_report.h"

#include "base/thread_pool.h"
#include "cli/json_text.h"

namespace motley {
namespace {

using Json = nlohmann::ordered_json;

Json logprobs_json(const TextModel& text, const GenerationOutcome& outcome) {
  Json list = Json::array();
  for (const SampledToken& token : outcome.tokens) {
    Json top = Json::array();
    for (const TokenLogprob& other : token.top) {
      top.push_back({{"token", other.token},
                     {"text", text.tokenizer.token_bytes(other.token)},
                     {"logprob", other.logprob}});
    }
    list.push_back({{"token", token.token},
                    {"text", text.tokenizer.token_bytes(token.token)},
                    {"logprob", token.logprob},
                    {"top", std::move(top)}});
  }
  return list;
}

}  // namespace

std::string draft_lines(const GenerationOutcome& outcome) {
  const std::string line = draft_text(outcome.stats.drafts) + "\n";
  return outcome.draft_choice.empty() ? line : line + "auto     " + outcome.draft_choice + "\n";
}

std::string run_json(const RunModel& model, const SessionOptions& options,
                     const GenerationOutcome& outcome) {
  const GenerationStats& stats = outcome.stats;
  Json tokens = Json::array();
  for (const SampledToken& token : outcome.tokens) tokens.push_back(token.token);
  Json json = {{"model", model.path},
               {"text", outcome.text},
               {"tokens", std::move(tokens)},
               {"finish_reason", finish_reason_name(outcome.reason)},
               {"stop", nullptr},
               {"prompt_tokens", outcome.prompt_tokens},
               {"reused_tokens", stats.reused_tokens},
               {"prefilled_tokens", stats.prompt_tokens},
               {"prefill_chunks", stats.prefill_chunks},
               {"generated_tokens", stats.generated_tokens},
               {"load_s", model.load_s},
               {"prefill_s", stats.prefill_s},
               {"decode_s", stats.decode_s},
               {"prefill_tokens_per_s", prefill_rate(stats)},
               {"decode_tokens_per_s", decode_rate(stats)},
               {"numerics", model.engine->numerics_name()},
               {"threads", model.engine->context().threads.size()},
               {"drafts", Json::parse(draft_json(options.drafts, stats.drafts))},
               {"seed", options.request.sampling.seed},
               {"streaming", Json::parse(stream_json(*model.engine, outcome.stream))}};
  if (options.draft_auto) json["drafts"]["auto"] = outcome.draft_choice;
  if (outcome.matched_stop) json["stop"] = *outcome.matched_stop;
  if (options.request.top_logprobs > 0) json["logprobs"] = logprobs_json(*model.text, outcome);
  return dump_json(json);
}

}  // namespace motley
