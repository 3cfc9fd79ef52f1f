// Options from the environment: MOTLEY_X for --x of any verb.
//
// A variable that begins with MOTLEY_ and is the name of no option is an error, so a misspelled one
// cannot be ignored in silence. A variable of an option that only other verbs have is left alone:
// it was exported for them. An empty value counts as unset.
// Thread rule: pure functions.
#pragma once

#include <map>
#include <span>
#include <string>

#include "base/status.h"
#include "cli/option_spec.h"
#include "cli/option_values.h"

namespace motley {

// The MOTLEY_ variables of a process.
using Environment = std::map<std::string, std::string>;
// `entries` ends with a null pointer, as environ does.
Environment read_environment(const char* const* entries);

// kInvalidArgument naming the first unknown variable and the closest known one.
Status check_environment(const Environment& environment, std::span<const VerbSpec> verbs);

// Sets the options of `verb` that the command line left open. kInvalidArgument naming the variable.
Status apply_environment(const Environment& environment, const VerbSpec& verb,
                         OptionValues* values);

}  // namespace motley
