// motley plan: what a model needs on this machine, and how fast it will be.
#include "base/cache_folder.h"
#include "base/owned_context.h"
#include "cli/common_options.h"
#include "cli/console.h"
#include "cli/model_options.h"
#include "cli/option_values.h"
#include "cli/stage_line.h"
#include "cli/verbs.h"
#include "engine/plan/model_plan.h"

namespace motley {
namespace {

using namespace options;

const OptionSpec kProbe = {.name = "probe",
                           .help = "measure again what was measured before and kept"};

const OptionSpec kHeat = {.name = "heat",
                          .type = OptionType::kFile,
                          .value = "FILE",
                          .help = "how often each expert is used, as an expert cache learned it",
                          .default_note = "even routing"};

// Those of running a model that change its memory or its speed.
std::vector<OptionSpec> plan_option_table() {
  return {kMemory,      kContext,     kExpertCache,  kStateBudget, kHeat,    kPacked,
          kIo,          kExpertsUsed, kProbe,        kThreads,     kNumeric, kCpu,
          kCacheFormat, kDelta,       kPrefillChunk, kJson,        kPocket};
}

EngineOptions planned_engine(const OptionValues& values, std::string model) {
  EngineOptions engine;
  engine.model = std::move(model);
  if (values.text(kNumeric) == "exact") engine.profile = NumericProfile::kExact;
  set_plan_options(values, &engine);
  engine.packed = values.texts(kPacked);
  if (values.given(kExpertsUsed)) {
    engine.experts_per_token = static_cast<int>(values.integer(kExpertsUsed));
  }
  return engine;
}

Status check_plan(const Invocation& invocation) {
  return check_memory_options(invocation.options);
}

Result<int> run_plan(Invocation& invocation) {
  const OptionValues& values = invocation.options;
  MOTLEY_ASSIGN_OR_RETURN(const std::string path, find_model(values));
  OwnedContext owned(thread_options(values));
  MOTLEY_RETURN_IF_ERROR(owned.status());
  StageLine line(invocation.console);
  ModelPlanOptions options;
  options.engine = planned_engine(values, path);
  options.probe_again = values.flag(kProbe);
  options.drive_cache = cache_file_path("drives.json");
  options.rate_cache = cache_file_path("rates.json");
  options.progress = [&](const std::string& stage) { line.show("measuring " + stage); };
  if (values.given(kHeat)) {
    options.heat_file = values.text(kHeat);
    MOTLEY_ASSIGN_OR_RETURN(options.heat, load_heat(owned.faults(), options.heat_file));
  }
  MOTLEY_ASSIGN_OR_RETURN(const ModelPlan plan, plan_model(owned.get(), options));
  line.show("");
  invocation.console.out(values.flag(kJson) ? plan.json() : plan.table());
  return kExitOk;
}

}  // namespace

VerbSpec plan_verb() {
  return {.name = "plan",
          .summary = "predict what a model needs here and how fast it will be",
          .description =
              "Divides the memory as `motley run` would with the same options, without reading "
              "the weights: what must be in memory, how many experts fit beside it, and the least "
              "that works. Then measures this machine for a few seconds (memory, one layer of each "
              "kind with made-up weights, the model's own drive) and predicts decode and prefill, "
              "what binds them, and what would help most. Measurements are kept in "
              "$XDG_CACHE_HOME/motley (~/.cache/motley) for 30 days; --probe repeats them.",
          .arguments = {{.name = "MODEL",
                         .type = OptionType::kFolder,
                         .help = "model directory (default: the pocket model, see --pocket)",
                         .required = false}},
          .options = plan_option_table(),
          .examples = {{"motley plan DIR --memory 8GiB", "a model larger than memory"},
                       {"motley plan DIR --context 32768 --json", "a long context, for programs"}},
          .check = check_plan,
          .run = run_plan};
}

}  // namespace motley
