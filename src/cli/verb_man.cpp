// motley man: prints the manual page.
#include "base/version.h"
#include "cli/console.h"
#include "cli/man_page.h"
#include "cli/verbs.h"

namespace motley {
namespace {

Result<int> run_man(Invocation& invocation) {
  invocation.console.out(man_page(all_verbs(), build_info().version));
  return kExitOk;
}

}  // namespace

VerbSpec man_verb() {
  return {.name = "man",
          .summary = "print the manual page",
          .examples = {{"motley man | man -l -", "read it"}},
          .run = run_man};
}

}  // namespace motley
