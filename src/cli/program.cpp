#include "cli/program.h"

#include <fmt/format.h>

#include <vector>

#include "base/log.h"
#include "base/version.h"
#include "cli/command_line.h"
#include "cli/help_text.h"
#include "cli/suggestion.h"

namespace motley {
namespace {

// How many of `words` name the verb: 0 when they do not.
size_t words_of_verb(const VerbSpec& verb, std::span<const std::string> words) {
  if (!words.empty() && words[0] == verb.name) return 1;
  if (words.size() > 1 && words[0] + " " + words[1] == verb.name) return 2;
  return 0;
}

const VerbSpec* find_verb(std::span<const VerbSpec> verbs, std::span<const std::string> words,
                          size_t* used) {
  for (const VerbSpec& verb : verbs) {
    *used = words_of_verb(verb, words);
    if (*used > 0) return &verb;
  }
  return nullptr;
}

Status unknown_verb(std::span<const VerbSpec> verbs, std::span<const std::string> words) {
  std::vector<std::string> known = {"help"};
  std::string subjects;
  for (const VerbSpec& verb : verbs) {
    const std::string name(verb.name);
    known.push_back(name.substr(0, name.find(' ')));
    if (name.starts_with(words[0] + " "))
      subjects.append(subjects.empty() ? "" : ", ").append(name);
  }
  const std::string shown = quote_input(words[0]);
  if (!subjects.empty()) {
    return invalid_argument(fmt::format("\"{}\" needs a subject: {}", shown, subjects));
  }
  if (shown.starts_with("-")) {
    return invalid_argument(
        fmt::format("{} comes before a verb; write motley VERB {}", shown, shown));
  }
  return invalid_argument(fmt::format("unknown verb \"{}\"{}; \"motley help\" lists them", shown,
                                      suggestion_for(words[0], known)));
}

// The verbs that `word` is the first of two words of: "bench" of "bench model".
std::vector<VerbSpec> verbs_of_group(std::span<const VerbSpec> verbs, const std::string& word) {
  std::vector<VerbSpec> group;
  for (const VerbSpec& verb : verbs) {
    if (verb.name.starts_with(word + " ")) group.push_back(verb);
  }
  return group;
}

int usage_error(Console& console, const Status& status) {
  console.error(status.message());
  return kExitUsage;
}

int print(Console& console, std::string_view text) {
  console.out(text);
  if (console.out_status().is_ok()) return kExitOk;
  console.error(console.out_status().message());
  return kExitFailure;
}

int run_help(std::span<const std::string> words, std::span<const VerbSpec> verbs,
             Console& console) {
  if (words.empty()) return print(console, overview_help(verbs));
  size_t used = 0;
  if (const VerbSpec* verb = find_verb(verbs, words, &used)) {
    return print(console, verb_help(*verb));
  }
  const std::vector<VerbSpec> group = verbs_of_group(verbs, words[0]);
  if (words.size() == 1 && !group.empty()) return print(console, group_help(words[0], group));
  return usage_error(console, unknown_verb(verbs, words));
}

int run_verb(const VerbSpec& verb, const OptionValues& values, Console& console) {
  Invocation invocation{values, console};
  if (verb.check != nullptr) {
    const Status status = verb.check(invocation);
    if (!status.is_ok()) return usage_error(console, status);
  }
  const Result<int> result = verb.run(invocation);
  if (!result.is_ok()) {
    console.error(escape_control_characters(result.status().message()));
    return kExitFailure;
  }
  if (!console.out_status().is_ok()) {
    console.error(console.out_status().message());
    return kExitFailure;
  }
  return *result;
}

}  // namespace

int run_program(std::span<const std::string> words, const Environment& environment,
                std::span<const VerbSpec> verbs, Console& console) {
  if (words.empty()) {
    console.err(overview_help(verbs));
    return kExitUsage;
  }
  if (words[0] == "--version" || words[0] == "-V") return print(console, version_text());
  if (words[0] == "help" || words[0] == "--help" || words[0] == "-h") {
    return run_help(words.subspan(1), verbs, console);
  }
  size_t used = 0;
  const VerbSpec* verb = find_verb(verbs, words, &used);
  if (verb == nullptr) {
    const bool asks_help = words.size() == 2 && (words[1] == "--help" || words[1] == "-h");
    return asks_help ? run_help(words.first(1), verbs, console)
                     : usage_error(console, unknown_verb(verbs, words));
  }
  Result<ParsedLine> line = parse_command_line(*verb, verbs, words.subspan(used));
  if (!line.is_ok()) return usage_error(console, line.status());
  if (line->wants_help) return print(console, verb_help(*verb));
  // A verb without options (completion, man) must work in any environment.
  if (!verb->options.empty()) {
    Status status = check_environment(environment, verbs);
    if (status.is_ok()) status = apply_environment(environment, *verb, &line->values);
    if (!status.is_ok()) return usage_error(console, status);
  }
  return run_verb(*verb, line->values, console);
}

}  // namespace motley
