#include "cli/help_text.h"

#include <fmt/format.h>

#include <algorithm>

namespace motley {
namespace {

// Columns on a terminal, near enough for our own texts: UTF-8 continuation bytes take none.
size_t columns_of(std::string_view text) {
  return static_cast<size_t>(std::count_if(text.begin(), text.end(), [](char c) {
    return (static_cast<unsigned char>(c) & 0xC0U) != 0x80U;
  }));
}

std::string argument_usage(const ArgumentSpec& argument) {
  std::string text(argument.name);
  if (!argument.choices.empty()) {
    text.clear();
    for (const std::string_view choice : argument.choices) {
      text.append(text.empty() ? "" : "|").append(choice);
    }
  }
  if (argument.repeatable) text += "...";
  return argument.required ? text : "[" + text + "]";
}

void append_option(const OptionSpec& option, std::string* text) {
  constexpr size_t kIndent = 6;
  *text += "  " + flag_text(option) + "\n";
  std::string body(option.help);
  const std::string fallback = default_text(option);
  if (!fallback.empty()) body += " (" + fallback + ")";
  if (option.repeatable) body += "; may be repeated";
  *text += wrap_text(body, kIndent);
  *text += std::string(kIndent, ' ') + "environment: " + environment_name(option) + "\n";
}

}  // namespace

std::string default_text(const OptionSpec& option) {
  if (!option.default_note.empty()) return fmt::format("default: {}", option.default_note);
  if (!option.default_value.empty()) return fmt::format("default {}", option.default_value);
  return "";
}

std::string wrap_text(std::string_view text, size_t indent, size_t width) {
  std::string wrapped;
  std::string line;
  const auto flush = [&] {
    if (!line.empty()) wrapped.append(indent, ' ').append(line);
    wrapped += '\n';
    line.clear();
  };
  size_t at = 0;
  while (at < text.size()) {
    const size_t end = std::min(text.find_first_of(" \n", at), text.size());
    const std::string_view word = text.substr(at, end - at);
    if (!line.empty() && indent + columns_of(line) + 1 + columns_of(word) > width) flush();
    if (!word.empty()) line.append(line.empty() ? "" : " ").append(word);
    if (end < text.size() && text[end] == '\n') flush();
    at = end + 1;
  }
  if (!line.empty()) flush();
  return wrapped;
}

std::string usage_line(const VerbSpec& verb) {
  std::string line = fmt::format("motley {}", verb.name);
  if (!verb.options.empty()) line += " [options]";
  for (const ArgumentSpec& argument : verb.arguments) line += " " + argument_usage(argument);
  return line;
}

std::string verb_help(const VerbSpec& verb) {
  std::string text =
      fmt::format("motley {}: {}\n\nusage: {}\n", verb.name, verb.summary, usage_line(verb));
  if (!verb.description.empty()) text += "\n" + wrap_text(verb.description, 0);
  if (!verb.arguments.empty()) text += "\narguments:\n";
  for (const ArgumentSpec& argument : verb.arguments) {
    text += fmt::format("  {}\n", argument.name) + wrap_text(argument.help, 6);
  }
  text += "\noptions:\n";
  for (const OptionSpec& option : verb.options) append_option(option, &text);
  text += "  -h, --help\n      this page\n";
  if (!verb.examples.empty()) text += "\nexamples:\n";
  for (const Example& example : verb.examples) {
    text += fmt::format("  {}\n", example.command) + wrap_text(example.meaning, 6);
  }
  return text;
}

std::string group_help(std::string_view word, std::span<const VerbSpec> verbs) {
  std::string text = fmt::format("usage: motley {} SUBJECT [options]\n\nsubjects:\n", word);
  size_t widest = 0;
  for (const VerbSpec& verb : verbs) widest = std::max(widest, verb.name.size());
  for (const VerbSpec& verb : verbs) {
    text += fmt::format("  {:<{}}  {}\n", verb.name, widest, verb.summary);
  }
  return text + fmt::format("\n\"motley help {}\" lists the options\n", verbs.front().name);
}

std::string overview_help(std::span<const VerbSpec> verbs) {
  std::string text =
      "motley runs mixture-of-experts models from the checkpoints people have.\n\n"
      "usage: motley VERB [options] [arguments]\n\nverbs:\n";
  size_t widest = 0;
  for (const VerbSpec& verb : verbs) widest = std::max(widest, verb.name.size());
  for (const VerbSpec& verb : verbs) {
    text += fmt::format("  {:<{}}  {}\n", verb.name, widest, verb.summary);
  }
  text += fmt::format("  {:<{}}  this page, or that of a verb: motley help run\n", "help", widest);
  text +=
      "\n"
      "  --version, -V   what this build is\n"
      "  --help, -h      this page\n\n"
      "Every option can also come from the environment: --prefill-chunk is\n"
      "MOTLEY_PREFILL_CHUNK. A MOTLEY_ variable that is no option is an error.\n\n"
      "exit status: 0 done, 1 failed, 2 wrong usage, 130 interrupted\n\n"
      "examples:\n"
      "  motley run\n"
      "      chat with the small model that comes with the program\n"
      "  motley run path/to/model -p 'Write a haiku about rivers.'\n"
      "      one answer\n"
      "  motley inspect path/to/model\n"
      "      what a checkpoint holds\n";
  return text;
}

}  // namespace motley
