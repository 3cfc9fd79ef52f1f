#include "cli/conversation.h"

#include <fmt/format.h>

namespace motley {

void Conversation::add_user(std::string text) {
  turns_.push_back({"user", std::move(text)});
}

void Conversation::add_assistant(std::string text) {
  turns_.push_back({"assistant", std::move(text)});
}

void Conversation::drop_last() {
  if (!turns_.empty()) turns_.pop_back();
}

nlohmann::ordered_json Conversation::messages() const {
  nlohmann::ordered_json messages = nlohmann::ordered_json::array();
  const auto add = [&](const char* role, const std::string& content) {
    messages.push_back({{"role", role}, {"content", content}});
  };
  if (!system_.empty()) add("system", system_);
  for (const Turn& turn : turns_) add(turn.role, turn.content);
  return messages;
}

Result<std::vector<TokenId>> Conversation::encode(const TextModel& model,
                                                  std::optional<bool> think) const {
  const nlohmann::ordered_json all = messages();
  ChatRequest request;
  request.messages = &all;
  request.think = think;
  MOTLEY_ASSIGN_OR_RETURN(const std::string text, render_chat(model, request));
  if (text.empty()) {
    const NamedChatTemplate* used = model.config.find_template();
    return unsupported(
        fmt::format("{}: the chat template rendered nothing; use --raw for a prompt "
                    "without a template",
                    used == nullptr ? "the model" : used->file));
  }
  return model.encode_prompt(text, /*rendered=*/true);
}

}  // namespace motley
