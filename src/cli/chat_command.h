// The commands of the chat: lines that begin with a slash.
// Thread rule: pure functions.
#pragma once

#include <string>
#include <string_view>

#include "base/status.h"

namespace motley {

enum class ChatCommandKind { kHelp, kClear, kSystem, kSave, kStats, kQuit };

struct ChatCommand {
  ChatCommandKind kind = ChatCommandKind::kHelp;
  std::string argument;  // what follows the name, without spaces around it
};

bool is_chat_command(std::string_view line);
// kInvalidArgument for an unknown command (with the closest one), a missing or a stray argument.
// REQUIRES: is_chat_command(line).
Result<ChatCommand> parse_chat_command(std::string_view line);

// One line per command.
std::string chat_command_help();

}  // namespace motley
