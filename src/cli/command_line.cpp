#include "cli/command_line.h"

#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <vector>

#include "base/log.h"
#include "cli/suggestion.h"

namespace motley {
namespace {

struct Bound {
  CLI::App app;
  std::vector<CLI::Option*> options;    // as in the verb's table
  std::vector<CLI::Option*> arguments;  // the same
  CLI::Option* help = nullptr;
};

void bind(const VerbSpec& verb, Bound* bound) {
  CLI::App& app = bound->app;
  app.set_help_flag();
  app.allow_extras();
  bound->help = app.add_flag("-h,--help");
  for (const OptionSpec& option : verb.options) {
    std::string names = "--" + std::string(option.name);
    if (option.letter != 0) names += std::string(",-") + option.letter;
    CLI::Option* added = nullptr;
    if (option.type == OptionType::kFlag) {
      added = app.add_flag(names);
    } else {
      added = app.add_option(names)->type_size(1)->expected(1)->allow_extra_args(false);
    }
    added->multi_option_policy(CLI::MultiOptionPolicy::TakeAll);
    bound->options.push_back(added);
  }
  for (const ArgumentSpec& argument : verb.arguments) {
    CLI::Option* added = app.add_option(std::string(argument.name))->type_size(1);
    added->expected(1)->allow_extra_args(false);
    bound->arguments.push_back(added);
  }
}

Status unknown_option(const VerbSpec& verb, std::span<const VerbSpec> all_verbs,
                      const std::string& word) {
  const std::string flag = word.substr(0, word.find('='));
  std::vector<std::string> known;
  for (const OptionSpec& option : verb.options) known.push_back("--" + std::string(option.name));
  for (const VerbSpec& other : all_verbs) {
    for (const OptionSpec& option : other.options) {
      if (flag != "--" + std::string(option.name)) continue;
      return invalid_argument(fmt::format("{} is not used by \"motley {}\"; it belongs to {}",
                                          quote_input(flag), verb.name, other.name));
    }
  }
  return invalid_argument(fmt::format("unknown option {}{}; \"motley help {}\" lists the options",
                                      quote_input(flag), suggestion_for(flag, known), verb.name));
}

Status check_extras(const VerbSpec& verb, std::span<const VerbSpec> all_verbs,
                    std::vector<std::string> extras) {
  // The library hands back the mark that ends the options.
  const auto mark = std::find(extras.begin(), extras.end(), "--");
  if (mark != extras.end()) extras.erase(mark);
  for (const std::string& word : extras) {
    if (word.size() > 1 && word[0] == '-') {
      return unknown_option(verb, all_verbs, word);
    }
  }
  if (extras.empty()) return Status::ok();
  return invalid_argument(fmt::format("unexpected argument \"{}\" after those of \"motley {}\"",
                                      quote_input(extras.front()), verb.name));
}

// Words that belong to the last argument when it may be repeated. The library would take them, and
// brackets in them for lists.
std::vector<std::string> take_repeated(const VerbSpec& verb, std::vector<std::string>* extras) {
  std::vector<std::string> repeated;
  if (verb.arguments.empty() || !verb.arguments.back().repeatable) return repeated;
  std::erase_if(*extras, [&](const std::string& word) {
    const bool is_value = word.size() < 2 || word[0] != '-';
    if (is_value) repeated.push_back(word);
    return is_value;
  });
  return repeated;
}

Status take_values(const VerbSpec& verb, const Bound& bound,
                   const std::vector<std::string>& repeated, OptionValues* values) {
  for (size_t i = 0; i < verb.options.size(); ++i) {
    if (bound.options[i]->count() == 0) continue;
    const OptionSpec& option = verb.options[i];
    std::vector<std::string> results = bound.options[i]->results();
    if (option.type == OptionType::kFlag) results.erase(results.begin(), results.end() - 1);
    MOTLEY_RETURN_IF_ERROR(
        values->set(option, std::move(results), "--" + std::string(option.name)));
  }
  for (size_t i = 0; i < verb.arguments.size(); ++i) {
    const ArgumentSpec& argument = verb.arguments[i];
    if (bound.arguments[i]->count() > 0) {
      std::vector<std::string> results = bound.arguments[i]->results();
      if (argument.repeatable) results.insert(results.end(), repeated.begin(), repeated.end());
      MOTLEY_RETURN_IF_ERROR(values->set_argument(argument, std::move(results)));
    } else if (argument.required) {
      return invalid_argument(
          fmt::format("\"motley {}\" needs {}: {}", verb.name, argument.name, argument.help));
    }
  }
  return Status::ok();
}

}  // namespace

Result<ParsedLine> parse_command_line(const VerbSpec& verb, std::span<const VerbSpec> all_verbs,
                                      std::span<const std::string> words) {
  ParsedLine line;
  try {
    Bound bound;
    bind(verb, &bound);
    // CLI11 takes its words from the back.
    bound.app.parse(std::vector<std::string>(words.rbegin(), words.rend()));
    line.wants_help = bound.help->count() > 0;
    if (line.wants_help) return line;
    std::vector<std::string> extras = bound.app.remaining();
    const std::vector<std::string> repeated = take_repeated(verb, &extras);
    MOTLEY_RETURN_IF_ERROR(check_extras(verb, all_verbs, std::move(extras)));
    MOTLEY_RETURN_IF_ERROR(take_values(verb, bound, repeated, &line.values));
  } catch (const CLI::Error& error) {
    return invalid_argument(quote_input(error.what()));
  }
  return line;
}

}  // namespace motley
