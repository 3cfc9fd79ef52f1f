// tokenizer_config.json: which tokens begin and end a text, and the chat templates.
//
// Only what changes the text or the tokens is read; the file has many fields that concern other
// programs. Source: Hugging Face transformers (PreTrainedTokenizerFast).
// Ownership: values. Thread rule: immutable data.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/status.h"
#include "io/file.h"
#include "text/tokenizer.h"

namespace motley {

inline constexpr size_t kMaxTokenizerConfigBytes = 16u << 20;
inline constexpr size_t kMaxChatTemplateBytes = 1u << 20;
inline constexpr size_t kMaxChatTemplates = 32;

struct NamedChatTemplate {
  std::string name;  // "default" where the file has one nameless template
  std::string source;
  std::string file;  // where it was read, for messages; "" when parsed from memory
};

struct TokenizerConfig {
  std::optional<std::string> bos_token;
  std::optional<std::string> eos_token;
  std::optional<std::string> pad_token;
  bool add_bos_token = false;
  bool add_eos_token = false;
  std::vector<NamedChatTemplate> chat_templates;
  // Id and text of every entry of added_tokens_decoder, ascending by id.
  std::vector<std::pair<TokenId, std::string>> added_tokens;

  static Result<TokenizerConfig> parse(std::string_view json);

  // Reads DIR/tokenizer_config.json, then DIR/chat_template.jinja, which replaces the default
  // template. Neither file need exist; one that exists and cannot be read is an error.
  static Result<TokenizerConfig> load_directory(const ModelDirectory& directory);

  // The template of that name, null when there is none.
  const std::string* chat_template(std::string_view name = "default") const;
  const NamedChatTemplate* find_template(std::string_view name = "default") const;

  // An error when this file and `tokenizer` disagree about a token: then the two belong to
  // different models.
  Status check_against(const Tokenizer& tokenizer) const;
};

}  // namespace motley
