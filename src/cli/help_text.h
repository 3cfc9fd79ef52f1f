// Help pages, made from the tables of the verbs.
// Thread rule: pure functions.
#pragma once

#include <span>
#include <string>
#include <string_view>

#include "cli/option_spec.h"

namespace motley {

// What `motley help` prints: all verbs and how to go on.
std::string overview_help(std::span<const VerbSpec> verbs);

// What `motley help VERB` and `motley VERB --help` print.
std::string verb_help(const VerbSpec& verb);

// What `motley help bench` prints: the subjects of a verb of two words.
std::string group_help(std::string_view word, std::span<const VerbSpec> verbs);

// "motley run [options] [MODEL]".
std::string usage_line(const VerbSpec& verb);

// "default 512"; "default: the model's own"; "" for flags and lists.
std::string default_text(const OptionSpec& option);

// `text` in lines of at most `width` columns, each after `indent` spaces. Newlines are kept.
std::string wrap_text(std::string_view text, size_t indent, size_t width = 80);

}  // namespace motley
