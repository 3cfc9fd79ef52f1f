// motley inspect: what a checkpoint holds.
#include "base/owned_context.h"
#include "cli/common_options.h"
#include "cli/console.h"
#include "cli/inspect_report.h"
#include "cli/model_options.h"
#include "cli/option_values.h"
#include "cli/verbs.h"

namespace motley {
namespace {

using namespace options;

Result<int> run_inspect(Invocation& invocation) {
  const OptionValues& values = invocation.options;
  MOTLEY_ASSIGN_OR_RETURN(const std::string model, find_model(values));
  OwnedContext owned({.threads = 1, .pin = false});
  MOTLEY_ASSIGN_OR_RETURN(const ModelFacts facts, read_model_facts(owned.get(), model));
  invocation.console.out(values.flag(kJson) ? facts_json(facts) : facts_table(facts));
  return kExitOk;
}

}  // namespace

VerbSpec inspect_verb() {
  return {.name = "inspect",
          .summary = "show what a checkpoint holds",
          .description =
              "Reads the configuration and the headers of the weight files, and accounts for "
              "every tensor: family, layers, parameters, bytes by part and format, state of a "
              "sequence, tokenizer and chat template. No weight is read.",
          .arguments = {{.name = "MODEL",
                         .type = OptionType::kFolder,
                         .help = "model directory (default: the pocket model, see --pocket)",
                         .required = false}},
          .options = {kJson, kPocket},
          .examples = {{"motley inspect models/pocket", "a table"},
                       {"motley inspect models/pocket --json", "the same facts for programs"}},
          .run = run_inspect};
}

}  // namespace motley
