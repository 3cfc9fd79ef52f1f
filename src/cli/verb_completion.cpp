// motley completion: prints a completion script.
#include "cli/completion.h"
#include "cli/console.h"
#include "cli/option_values.h"
#include "cli/verbs.h"

namespace motley {
namespace {

Result<int> run_completion(Invocation& invocation) {
  const std::string shell = *invocation.options.argument("SHELL");
  const std::vector<VerbSpec> verbs = all_verbs();
  if (shell == "bash") invocation.console.out(bash_completion(verbs));
  if (shell == "zsh") invocation.console.out(zsh_completion(verbs));
  if (shell == "fish") invocation.console.out(fish_completion(verbs));
  return kExitOk;
}

}  // namespace

VerbSpec completion_verb() {
  return {.name = "completion",
          .summary = "print a completion script for a shell",
          .arguments = {{.name = "SHELL",
                         .type = OptionType::kChoice,
                         .help = "bash, zsh or fish",
                         .choices = {"bash", "zsh", "fish"}}},
          .examples = {{"source <(motley completion bash)", "complete in this shell"}},
          .run = run_completion};
}

}  // namespace motley
