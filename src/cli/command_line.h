// Splits a command line into the values of one verb's table. The only file that uses CLI11.
//
// Thread rule: pure function. Errors: kInvalidArgument, one line that names the argument.
#pragma once

#include <span>
#include <string>

#include "base/status.h"
#include "cli/option_spec.h"
#include "cli/option_values.h"

namespace motley {

struct ParsedLine {
  OptionValues values;
  bool wants_help = false;  // --help or -h; the values are then unchecked
};

// `words` are those after the verb. `all_verbs` serves the messages only: an option of another verb
// is named as such.
Result<ParsedLine> parse_command_line(const VerbSpec& verb, std::span<const VerbSpec> all_verbs,
                                      std::span<const std::string> words);

}  // namespace motley
