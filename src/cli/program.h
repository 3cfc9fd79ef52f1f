// The program behind main(): finds the verb, reads its options, runs it, reports errors.
#pragma once

#include <span>
#include <string>

#include "cli/console.h"
#include "cli/environment.h"

namespace motley {

// `words` are those after the program's name. Returns the exit status: 0 done, 1 failed, 2 wrong
// usage, 130 interrupted. An error is one line on standard error, "motley: message".
int run_program(std::span<const std::string> words, const Environment& environment,
                std::span<const VerbSpec> verbs, Console& console);

}  // namespace motley
