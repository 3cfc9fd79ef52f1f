// motley bench model: speed of a model, as a share of what the machine can do.
#include "base/clock.h"
#include "base/owned_context.h"
#include "base/progress.h"
#include "cli/common_options.h"
#include "cli/console.h"
#include "cli/model_options.h"
#include "cli/option_values.h"
#include "cli/stage_line.h"
#include "cli/verbs.h"
#include "engine/bench_model.h"

namespace motley {
namespace {

using namespace options;

const OptionSpec kPromptTokens = {.name = "prompt",
                                  .type = OptionType::kInteger,
                                  .value = "N",
                                  .help = "random tokens to prefill",
                                  .default_value = "512",
                                  .least = 1,
                                  .most = 1e8,
                                  .environment = "MOTLEY_BENCH_PROMPT"};
const OptionSpec kGenerate = {.name = "generate",
                              .type = OptionType::kInteger,
                              .value = "N",
                              .help = "tokens to decode after them",
                              .default_value = "64",
                              .least = 1,
                              .most = 1e8};
const OptionSpec kRepeat = {.name = "repeat",
                            .type = OptionType::kInteger,
                            .value = "N",
                            .help = "runs, of which the fastest counts",
                            .default_value = "3",
                            .least = 1,
                            .most = 1000};
const OptionSpec kBenchSeed = {.name = "seed",
                               .type = OptionType::kInteger,
                               .value = "S",
                               .help = "seed of the random tokens",
                               .default_value = "1",
                               .least = 0};
const OptionSpec kNoMachine = {.name = "no-machine",
                               .help = "do not measure memory and matrix rates; no shares then"};

std::vector<OptionSpec> bench_option_table() {
  std::vector<OptionSpec> table = {kPromptTokens, kGenerate,     kRepeat, kBenchSeed,
                                   kNoMachine,    kRecordRoutes, kDraft,  kJson};
  for (const OptionSpec& option : engine_option_table()) table.push_back(option);
  return table;
}

Status check_bench(const Invocation& invocation) {
  MOTLEY_RETURN_IF_ERROR(check_draft_option(invocation.options));
  return check_engine_options(invocation.options);
}

Result<std::vector<MachineRates>> measure(const EngineOptions& engine, int threads,
                                          const Clock& clock, StageLine& line) {
  MOTLEY_ASSIGN_OR_RETURN(const CpuIsa isa, choose_cpu_isa(engine.cpu));
  MachineRatesOptions options;
  options.isa = isa;
  options.threads = threads;
  options.progress = [&](const std::string& stage) { line.show("measuring " + stage); };
  return measure_machine(clock, options);
}

Result<int> run_bench_model(Invocation& invocation) {
  const OptionValues& values = invocation.options;
  MOTLEY_ASSIGN_OR_RETURN(const std::string path, find_model(values));
  EngineOptions options = engine_options(values, path);
  set_drafts(draft_choice(values), &options);
  OwnedContext owned(thread_options(values), log_options(values));
  MOTLEY_RETURN_IF_ERROR(owned.status());
  Context& context = owned.get();
  StageLine line(invocation.console);
  std::vector<MachineRates> machine;
  if (!values.flag(kNoMachine)) {
    MOTLEY_ASSIGN_OR_RETURN(machine, measure(options, context.threads.size(), context.clock, line));
  }
  line.show("");
  const int64_t start_ns = context.clock.now_ns();
  MOTLEY_ASSIGN_OR_RETURN(const std::unique_ptr<Engine> engine, load_engine(context, options));
  const double load_s = seconds_since(context.clock, start_ns);
  BenchOptions bench;
  bench.prompt_tokens = values.integer(kPromptTokens);
  bench.generate_tokens = values.integer(kGenerate);
  bench.repeat = values.integer(kRepeat);
  bench.prefill_chunk = values.integer(kPrefillChunk);
  bench.drafts = draft_choice(values).most;
  bench.draft_auto = draft_choice(values).is_auto;
  bench.seed = static_cast<uint64_t>(values.integer(kBenchSeed));
  bench.read_bytes = values.flag(kNoMachine) ? 0 : kAutoReadBytes;
  MOTLEY_ASSIGN_OR_RETURN(const auto routes, route_recorder(values, *engine));
  bench.observer = routes.get();
  bench.progress = [&](const std::string& stage) { line.show(stage); };
  MOTLEY_ASSIGN_OR_RETURN(ModelBench result, bench_model(*engine, bench));
  if (routes != nullptr) MOTLEY_RETURN_IF_ERROR(routes->finish());
  result.load_s = load_s;
  result.machine = std::move(machine);
  line.show("");
  invocation.console.out(values.flag(kJson) ? result.json() : result.table());
  return kExitOk;
}

}  // namespace

VerbSpec bench_model_verb() {
  return {.name = "bench model",
          .summary = "measure a model's speed and its share of the machine's",
          .description =
              "Measures how fast this machine reads memory and multiplies, for one thread up to "
              "all of them, then the model's prefill and decode on random tokens. A decoded "
              "token must read the weights it meets and the state; the rate of that is printed "
              "as a share of the memory rate, and the multiply-adds of prefill as a share of "
              "the matrix unit's rate. With --draft it decodes what the model itself would say "
              "next, because random tokens cannot be guessed. Needs no tokenizer.",
          .arguments = {{.name = "MODEL",
                         .type = OptionType::kFolder,
                         .help = "model directory (default: the pocket model, see --pocket)",
                         .required = false}},
          .options = bench_option_table(),
          .examples = {{"motley bench model models/pocket", "a table"},
                       {"motley bench model DIR --prompt 2048 --generate 128 --json",
                        "longer, for programs"}},
          .check = check_bench,
          .run = run_bench_model};
}

}  // namespace motley
