#include "cli/chat_command.h"

#include <fmt/format.h>

#include <array>
#include <vector>

#include "base/log.h"
#include "cli/suggestion.h"

namespace motley {
namespace {

enum class Argument { kNone, kOptional, kRequired };

struct Row {
  std::string_view name;
  ChatCommandKind kind;
  Argument argument;
  std::string_view argument_name;
  std::string_view help;
};

constexpr std::array kCommands = {
    Row{"/help", ChatCommandKind::kHelp, Argument::kNone, "", "this list"},
    Row{"/clear", ChatCommandKind::kClear, Argument::kNone, "", "forget the conversation"},
    Row{"/system", ChatCommandKind::kSystem, Argument::kOptional, "[TEXT]",
        "set the system message, or show it"},
    Row{"/save", ChatCommandKind::kSave, Argument::kRequired, "FILE",
        "write the messages as JSON, as `motley template` reads them"},
    Row{"/stats", ChatCommandKind::kStats, Argument::kNone, "", "tokens and speeds so far"},
    Row{"/quit", ChatCommandKind::kQuit, Argument::kNone, "", "end the program (also Ctrl-D)"},
};

std::string_view trim(std::string_view text) {
  const size_t begin = text.find_first_not_of(" \t");
  if (begin == std::string_view::npos) return {};
  return text.substr(begin, text.find_last_not_of(" \t") + 1 - begin);
}

}  // namespace

bool is_chat_command(std::string_view line) {
  return line.starts_with("/");
}

Result<ChatCommand> parse_chat_command(std::string_view line) {
  const std::string_view name = line.substr(0, line.find_first_of(" \t\n"));
  const std::string_view argument = trim(line.substr(name.size()));
  std::vector<std::string> known;
  for (const Row& row : kCommands) {
    known.emplace_back(row.name);
    if (row.name != name) continue;
    if (row.argument == Argument::kRequired && argument.empty()) {
      return invalid_argument(fmt::format("{} needs {}", row.name, row.argument_name));
    }
    if (row.argument == Argument::kNone && !argument.empty()) {
      return invalid_argument(fmt::format("{} takes no argument", row.name));
    }
    return ChatCommand{row.kind, std::string(argument)};
  }
  return invalid_argument(fmt::format("unknown command {}{}; /help lists them", quote_input(name),
                                      suggestion_for(name, known)));
}

std::string chat_command_help() {
  std::string text;
  for (const Row& row : kCommands) {
    text +=
        fmt::format("  {:<16} {}\n", fmt::format("{} {}", row.name, row.argument_name), row.help);
  }
  return text +
         "  A line that ends in a backslash goes on in the next one.\n"
         "  Ctrl-C stops an answer; twice at the prompt, or Ctrl-D, quits.\n";
}

}  // namespace motley
