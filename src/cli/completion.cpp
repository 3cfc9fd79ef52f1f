#include "cli/completion.h"

#include <fmt/format.h>

#include <algorithm>
#include <string_view>
#include <vector>

namespace motley {
namespace {

// Text inside single quotes of a POSIX shell or of fish.
std::string quote(std::string_view text) {
  std::string escaped = "'";
  for (const char c : text) {
    if (c == '\'') {
      escaped += "'\\''";
    } else {
      escaped += c;
    }
  }
  return escaped + "'";
}

// zsh splits an option's line at colons and brackets.
std::string zsh_text(std::string_view text) {
  std::string escaped;
  for (const char c : text) {
    if (c == ':' || c == '[' || c == ']') escaped += '\\';
    escaped += c;
  }
  return escaped;
}

std::string join(const std::vector<std::string_view>& words) {
  std::string text;
  for (const std::string_view word : words) text.append(text.empty() ? "" : " ").append(word);
  return text;
}

std::vector<std::string_view> first_words(std::span<const VerbSpec> verbs) {
  std::vector<std::string_view> words;
  for (const VerbSpec& verb : verbs) {
    const std::string_view word = verb.name.substr(0, verb.name.find(' '));
    if (std::find(words.begin(), words.end(), word) == words.end()) words.push_back(word);
  }
  words.push_back("help");
  return words;
}

// The second words of verbs with a subject, "model" of "bench model".
std::vector<std::string_view> subjects_of(std::span<const VerbSpec> verbs, std::string_view first) {
  std::vector<std::string_view> subjects;
  for (const VerbSpec& verb : verbs) {
    const size_t space = verb.name.find(' ');
    if (space == std::string_view::npos || verb.name.substr(0, space) != first) continue;
    subjects.push_back(verb.name.substr(space + 1));
  }
  return subjects;
}

std::vector<std::string_view> argument_choices(const VerbSpec& verb) {
  std::vector<std::string_view> words;
  for (const ArgumentSpec& argument : verb.arguments) {
    words.insert(words.end(), argument.choices.begin(), argument.choices.end());
  }
  return words;
}

std::string all_flags(const VerbSpec& verb) {
  std::string flags;
  for (const OptionSpec& option : verb.options) {
    flags.append(flags.empty() ? "--" : " --").append(option.name);
    if (option.letter != 0) flags.append(" -").append(1, option.letter);
  }
  return flags + (flags.empty() ? "--help" : " --help");
}

std::string bash_value_cases(const VerbSpec& verb) {
  std::string cases;
  for (const OptionSpec& option : verb.options) {
    if (option.type == OptionType::kFlag) continue;
    std::string pattern = fmt::format("--{}", option.name);
    if (option.letter != 0) pattern += fmt::format("|-{}", option.letter);
    std::string action = "COMPREPLY=()";
    if (option.type == OptionType::kChoice) {
      action = fmt::format("COMPREPLY=($(compgen -W '{}' -- \"$word\"))", join(option.choices));
    } else if (option.type == OptionType::kFile) {
      action = "compopt -o filenames; COMPREPLY=($(compgen -f -- \"$word\"))";
    } else if (option.type == OptionType::kFolder) {
      action = "compopt -o filenames; COMPREPLY=($(compgen -d -- \"$word\"))";
    }
    cases += fmt::format("        {}) {}; return ;;\n", pattern, action);
  }
  return cases;
}

std::string bash_verb(const VerbSpec& verb) {
  std::string text = fmt::format("    {})\n", quote(verb.name));
  const std::string cases = bash_value_cases(verb);
  if (!cases.empty()) text += "      case $previous in\n" + cases + "      esac\n";
  const std::string choices = join(argument_choices(verb));
  text +=
      fmt::format("      if [[ $word == -* ]]; then COMPREPLY=($(compgen -W '{}' -- \"$word\"))\n",
                  all_flags(verb));
  if (choices.empty()) {
    text += "      else compopt -o filenames; COMPREPLY=($(compgen -f -- \"$word\")); fi\n";
  } else {
    text += fmt::format("      else COMPREPLY=($(compgen -W '{}' -- \"$word\")); fi\n", choices);
  }
  return text + "      ;;\n";
}

std::string zsh_option(const OptionSpec& option) {
  std::string value;
  if (option.type == OptionType::kChoice) {
    value = fmt::format(":{}:({})", option.name, join(option.choices));
  } else if (option.type == OptionType::kFile) {
    value = ":file:_files";
  } else if (option.type == OptionType::kFolder) {
    value = ":folder:_files -/";
  } else if (option.type != OptionType::kFlag) {
    value = fmt::format(":{}: ", zsh_text(option.value));
  }
  const std::string repeat = option.repeatable ? "*" : "";
  std::string text =
      "      " +
      quote(fmt::format("{}--{}[{}]{}", repeat, option.name, zsh_text(option.help), value)) +
      " \\\n";
  if (option.letter != 0) {
    text += "      " +
            quote(fmt::format("{}-{}[{}]{}", repeat, option.letter, zsh_text(option.help), value)) +
            " \\\n";
  }
  return text;
}

std::string zsh_verb(const VerbSpec& verb) {
  std::string text = fmt::format("    {})\n      _arguments \\\n", quote(verb.name));
  for (const OptionSpec& option : verb.options) text += zsh_option(option);
  text += "      '--help[this page]' \\\n";
  const std::string choices = join(argument_choices(verb));
  text += choices.empty() ? "      '*:file:_files'\n"
                          : "      " + quote("*:argument:(" + choices + ")") + "\n";
  return text + "      ;;\n";
}

std::string fish_option(const VerbSpec& verb, const OptionSpec& option) {
  std::string line =
      fmt::format("complete -c motley -n {} -l {}",
                  quote(fmt::format("__motley_verb_is {}", quote(verb.name))), option.name);
  if (option.letter != 0) line += fmt::format(" -s {}", option.letter);
  if (option.type == OptionType::kChoice) {
    line += fmt::format(" -x -a {}", quote(join(option.choices)));
  } else if (option.type == OptionType::kFile || option.type == OptionType::kFolder) {
    line += " -r -F";
  } else if (option.type != OptionType::kFlag) {
    line += " -x";
  }
  return line + fmt::format(" -d {}\n", quote(option.help));
}

}  // namespace

std::string bash_completion(std::span<const VerbSpec> verbs) {
  std::string text =
      "# Completion of motley for bash; made by `motley completion bash`.\n"
      "_motley() {\n"
      "  local word=${COMP_WORDS[COMP_CWORD]} previous=${COMP_WORDS[COMP_CWORD-1]}\n"
      "  local verb=${COMP_WORDS[1]}\n"
      "  COMPREPLY=()\n";
  text += fmt::format(
      "  if ((COMP_CWORD == 1)); then\n"
      "    COMPREPLY=($(compgen -W '{} --help --version' -- \"$word\")); return\n"
      "  fi\n",
      join(first_words(verbs)));
  text += "  case $verb in\n";
  text += fmt::format("    help) COMPREPLY=($(compgen -W '{}' -- \"$word\")); return ;;\n",
                      join(first_words(verbs)));
  for (const std::string_view first : first_words(verbs)) {
    const auto subjects = subjects_of(verbs, first);
    if (subjects.empty()) continue;
    text += fmt::format(
        "    {0}) if ((COMP_CWORD == 2)); then\n"
        "        COMPREPLY=($(compgen -W '{1}' -- \"$word\")); return\n"
        "      fi\n      verb=\"$verb ${{COMP_WORDS[2]}}\" ;;\n",
        first, join(subjects));
  }
  text += "  esac\n  case $verb in\n";
  for (const VerbSpec& verb : verbs) text += bash_verb(verb);
  return text + "  esac\n}\ncomplete -F _motley motley\n";
}

std::string zsh_completion(std::span<const VerbSpec> verbs) {
  std::string text =
      "#compdef motley\n# Completion of motley for zsh; made by `motley completion zsh`.\n"
      "_motley() {\n  local verb=$words[2]\n";
  text += fmt::format("  if ((CURRENT == 2)); then compadd {} --help --version; return; fi\n",
                      join(first_words(verbs)));
  text += "  case $verb in\n";
  text += fmt::format("    help) compadd {}; return ;;\n", join(first_words(verbs)));
  for (const std::string_view first : first_words(verbs)) {
    const auto subjects = subjects_of(verbs, first);
    if (subjects.empty()) continue;
    text += fmt::format(
        "    {0}) if ((CURRENT == 3)); then compadd {1}; return; fi\n"
        "      verb=\"$verb $words[3]\"; shift words; ((CURRENT--)) ;;\n",
        first, join(subjects));
  }
  text += "  esac\n  shift words\n  ((CURRENT--))\n  case $verb in\n";
  for (const VerbSpec& verb : verbs) text += zsh_verb(verb);
  return text + "  esac\n}\n_motley \"$@\"\n";
}

std::string fish_completion(std::span<const VerbSpec> verbs) {
  std::string text =
      "# Completion of motley for fish; made by `motley completion fish`.\n"
      "function __motley_verb_is\n"
      "    set -l words (commandline -opc)\n"
      "    test \"$words[2]\" = \"$argv[1]\"; or test \"$words[2] $words[3]\" = \"$argv[1]\"\n"
      "end\n"
      "function __motley_no_verb\n"
      "    test (count (commandline -opc)) -eq 1\n"
      "end\n";
  for (const std::string_view first : first_words(verbs)) {
    text += fmt::format("complete -c motley -f -n __motley_no_verb -a {}\n", first);
    for (const std::string_view subject : subjects_of(verbs, first)) {
      text += fmt::format("complete -c motley -f -n '__motley_verb_is {}' -a {}\n", first, subject);
    }
  }
  for (const VerbSpec& verb : verbs) {
    const std::string choices = join(argument_choices(verb));
    if (!choices.empty()) {
      text +=
          fmt::format("complete -c motley -f -n {} -a {}\n",
                      quote(fmt::format("__motley_verb_is {}", quote(verb.name))), quote(choices));
    }
    for (const OptionSpec& option : verb.options) text += fish_option(verb, option);
  }
  return text;
}

}  // namespace motley
