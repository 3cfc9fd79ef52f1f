// motley bench soak: random requests for a long time, and whether memory or descriptors grow.
#include "base/owned_context.h"
#include "base/signals.h"
#include "cli/common_options.h"
#include "cli/console.h"
#include "cli/json_text.h"
#include "cli/model_options.h"
#include "cli/option_values.h"
#include "cli/stage_line.h"
#include "cli/verbs.h"
#include "engine/soak.h"

namespace motley {
namespace {

using namespace options;
using Json = nlohmann::ordered_json;

const OptionSpec kMinutes = {.name = "minutes",
                             .type = OptionType::kReal,
                             .value = "M",
                             .help = "how long",
                             .default_value = "60",
                             .least = 0.01,
                             .most = 1e6};
const OptionSpec kMostPrompt = {.name = "prompt",
                                .type = OptionType::kInteger,
                                .value = "N",
                                .help = "most tokens of a random prompt",
                                .default_value = "512",
                                .least = 1,
                                .most = 1e8,
                                .environment = "MOTLEY_SOAK_PROMPT"};
const OptionSpec kMostGenerated = {.name = "generate",
                                   .type = OptionType::kInteger,
                                   .value = "N",
                                   .help = "most tokens of an answer",
                                   .default_value = "64",
                                   .least = 1,
                                   .most = 1e8,
                                   .environment = "MOTLEY_SOAK_GENERATE"};
const OptionSpec kAtOnce = {.name = "at-once",
                            .type = OptionType::kInteger,
                            .value = "N",
                            .help = "requests in flight",
                            .default_value = "2",
                            .least = 1,
                            .most = 1000};
const OptionSpec kSoakSeed = {.name = "seed",
                              .type = OptionType::kInteger,
                              .value = "S",
                              .help = "seed of the random requests",
                              .default_value = "1",
                              .least = 0};

std::vector<OptionSpec> soak_option_table() {
  std::vector<OptionSpec> table = {kMinutes, kMostPrompt, kMostGenerated,
                                   kAtOnce,  kSoakSeed,   kJson};
  for (const OptionSpec& option : engine_option_table()) table.push_back(option);
  return table;
}

Status check_soak(const Invocation& invocation) {
  return check_engine_options(invocation.options);
}

std::string json_of(const SoakReport& report) {
  Json json = {{"passed", report.passed()},
               {"growth_bytes", report.growth_bytes()},
               {"allowed_growth_bytes", report.allowed_growth_bytes},
               {"descriptor_growth", report.descriptor_growth()},
               {"thread_growth", report.thread_growth()},
               {"cancelled", report.cancelled},
               {"failed", report.failed},
               {"first_failure", report.first_failure},
               {"samples", Json::array()}};
  for (const SoakSample& sample : report.samples) {
    json["samples"].push_back({{"seconds", sample.at_s},
                               {"requests", sample.requests},
                               {"tokens", sample.tokens},
                               {"resident_bytes", sample.memory.resident_bytes},
                               {"descriptors", sample.handles.descriptors},
                               {"threads", sample.handles.threads}});
  }
  return dump_json(json);
}

Result<int> run_bench_soak(Invocation& invocation) {
  const OptionValues& values = invocation.options;
  MOTLEY_ASSIGN_OR_RETURN(const std::string path, find_model(values));
  EngineOptions engine_settings = engine_options(values, path);
  OwnedContext owned(thread_options(values), log_options(values));
  MOTLEY_RETURN_IF_ERROR(owned.status());
  StageLine line(invocation.console);
  MOTLEY_ASSIGN_OR_RETURN(const std::unique_ptr<Engine> engine,
                          load_engine(owned.get(), engine_settings));
  const InterruptHandler interrupt(InterruptHandler::Signals::kInterruptAndTerminate);
  SoakOptions options;
  options.seconds = values.real(kMinutes) * 60;
  options.max_prompt_tokens = values.integer(kMostPrompt);
  options.max_new_tokens = values.integer(kMostGenerated);
  options.requests_at_once = static_cast<int>(values.integer(kAtOnce));
  options.prefill_chunk = values.integer(kPrefillChunk);
  options.seed = static_cast<uint64_t>(values.integer(kSoakSeed));
  options.is_interrupted = [&interrupt] { return interrupt.interrupted(); };
  options.progress = [&line](const std::string& stage) { line.show(stage); };
  MOTLEY_ASSIGN_OR_RETURN(const SoakReport report, soak(*engine, options));
  line.show("");
  invocation.console.out(values.flag(kJson) ? json_of(report) : report.table());
  return report.passed() ? kExitOk : kExitFailure;
}

}  // namespace

VerbSpec bench_soak_verb() {
  return {.name = "bench soak",
          .summary = "run random requests for a long time and watch what the process holds",
          .description =
              "Sends random prompts of random lengths, several at a time: greedy and sampled, some "
              "continued, some cancelled. Memory, open descriptors and threads are sampled; exit "
              "status 1 when the second half of the time needs more of one than the first half, or "
              "a request fails. Ctrl-C ends early with a report. Needs no tokenizer.",
          .arguments = {{.name = "MODEL",
                         .type = OptionType::kFolder,
                         .help = "model directory (default: the pocket model, see --pocket)",
                         .required = false}},
          .options = soak_option_table(),
          .examples = {{"motley bench soak DIR --memory 8GiB", "an hour inside a budget"},
                       {"motley bench soak --minutes 1 --expert-cache 25% --json",
                        "the pocket model, streamed, for programs"}},
          .check = check_soak,
          .run = run_bench_soak};
}

}  // namespace motley
