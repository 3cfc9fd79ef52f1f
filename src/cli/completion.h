// Completion scripts of the shells, made from the tables of the verbs.
// Thread rule: pure functions.
#pragma once

#include <span>
#include <string>

#include "cli/option_spec.h"

namespace motley {

std::string bash_completion(std::span<const VerbSpec> verbs);
std::string zsh_completion(std::span<const VerbSpec> verbs);
std::string fish_completion(std::span<const VerbSpec> verbs);

}  // namespace motley
