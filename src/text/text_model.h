// The text side of a model directory: tokenizer, chat template and their settings.
//
// Ownership: an owning, movable value. Thread rule: immutable; share by const reference.
#pragma once

#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "base/status.h"
#include "text/chat_template.h"
#include "text/token_id.h"
#include "text/tokenizer.h"
#include "text/tokenizer_config.h"

namespace motley {

struct TextModel {
  Tokenizer tokenizer;
  std::optional<ChatTemplate> chat_template;
  // Why there is none, where the directory has one that this build cannot parse: raw text still
  // works.
  Status chat_template_error;
  // Where `tokenizer` was read, for messages.
  std::string tokenizer_path;
  TokenizerConfig config;  // empty when the directory has no tokenizer_config.json

  // The names of the template's variables that switch reasoning on and off; empty when it has none.
  std::vector<std::string> thinking_switches() const;

  // Stop tokens: those of the model's own configuration, and the tokenizer's eos_token.
  std::vector<TokenId> stop_tokens(std::span<const int32_t> from_model) const;

  // As Tokenizer::encode; errors that the file's regex causes name it.
  Result<std::vector<TokenId>> encode(std::string_view text, EncodeOptions options = {}) const;

  // `prompt` as tokens: with the settings that `config` asks for (add_bos_token), special tokens
  // recognised. `rendered`: the text came from the template, which has put its own bos_token.
  Result<std::vector<TokenId>> encode_prompt(std::string_view prompt, bool rendered) const;
};

// What a chat is rendered from.
struct ChatRequest {
  // JSON arrays. `tools` may be null.
  const nlohmann::ordered_json* messages = nullptr;
  const nlohmann::ordered_json* tools = nullptr;
  bool add_generation_prompt = true;
  std::optional<bool> think;  // unset: as the template has it
};

// The template's own error, with its file; kUnsupported when the model has no template, or `think`
// is set and the template has no switch.
Result<std::string> render_chat(const TextModel& model, const ChatRequest& request);

// Reads tokenizer.json, tokenizer_config.json and chat_template.jinja of a directory; the last two
// may be absent, and the template of the .jinja file wins. Errors name the file.
Result<TextModel> load_text_model(const std::string& path);

}  // namespace motley
