#include "text/tokenizer_config.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>

#include "text/added_tokens.h"
#include "text/json_reader.h"

namespace motley {
namespace {

using Json = nlohmann::json;

// A token is a string, or an object with its content; null and absent mean none.
Result<std::optional<std::string>> token_field(const Json& config, const char* name) {
  const auto found = config.find(name);
  if (found == config.end() || found->is_null()) return std::optional<std::string>();
  const Json* text = &*found;
  if (text->is_object()) {
    const auto content = text->find("content");
    if (content != text->end()) text = &*content;
  }
  if (!text->is_string()) {
    return corrupt(fmt::format("{} must be a text, an object with a content, or null", name));
  }
  const auto& value = text->get_ref<const std::string&>();
  if (value.empty() || value.size() > kMaxAddedTokenBytes) {
    return corrupt(fmt::format("{} must have 1 to {} bytes", name, kMaxAddedTokenBytes));
  }
  return std::optional<std::string>(value);
}

Result<bool> flag_field(const Json& config, const char* name) {
  const auto found = config.find(name);
  if (found == config.end() || found->is_null()) return false;
  if (!found->is_boolean()) return corrupt(fmt::format("{} must be true or false", name));
  return found->get<bool>();
}

Status add_template(std::string name, const Json& source, TokenizerConfig& out) {
  if (!source.is_string()) return corrupt("chat_template must be a text or a list of named texts");
  const auto& text = source.get_ref<const std::string&>();
  if (text.size() > kMaxChatTemplateBytes) {
    return corrupt(fmt::format("chat_template: {} bytes are over the limit of {}", text.size(),
                               kMaxChatTemplateBytes));
  }
  if (out.chat_template(name) != nullptr) return corrupt("chat_template: a name appears twice");
  out.chat_templates.push_back({std::move(name), text, ""});
  return Status::ok();
}

Status read_templates(const Json& config, TokenizerConfig& out) {
  const auto found = config.find("chat_template");
  if (found == config.end() || found->is_null()) return Status::ok();
  if (!found->is_array()) return add_template("default", *found, out);
  if (found->size() > kMaxChatTemplates) {
    return corrupt(fmt::format("chat_template: more than {} templates", kMaxChatTemplates));
  }
  for (const Json& entry : *found) {
    if (!entry.is_object() || !entry.contains("name") || !entry["name"].is_string() ||
        !entry.contains("template") || entry["name"].get_ref<const std::string&>().size() > 64) {
      return corrupt("chat_template: every entry needs a name of at most 64 bytes and a template");
    }
    MOTLEY_RETURN_IF_ERROR(add_template(entry["name"].get<std::string>(), entry["template"], out));
  }
  return Status::ok();
}

Status read_added_tokens(const Json& config, TokenizerConfig& out) {
  const auto found = config.find("added_tokens_decoder");
  if (found == config.end() || found->is_null()) return Status::ok();
  if (!found->is_object() || found->size() > kMaxAddedTokens) {
    return corrupt(fmt::format("added_tokens_decoder must be an object of at most {} tokens",
                               kMaxAddedTokens));
  }
  for (const auto& entry : found->items()) {
    const std::string& key = entry.key();
    TokenId id = -1;
    const auto parsed = std::from_chars(key.data(), key.data() + key.size(), id);
    const bool is_number = parsed.ec == std::errc() && parsed.ptr == key.data() + key.size();
    if (!is_number || id < 0 || id >= kTokenIdLimit) {
      return corrupt(
          fmt::format("added_tokens_decoder: a key is not an id below {}", kTokenIdLimit));
    }
    const Json& token = entry.value();
    if (!token.is_object() || !token.contains("content") || !token["content"].is_string()) {
      return corrupt(fmt::format("added_tokens_decoder.{} must have a content", id));
    }
    out.added_tokens.emplace_back(id, token["content"].get<std::string>());
  }
  std::sort(out.added_tokens.begin(), out.added_tokens.end());
  return Status::ok();
}

}  // namespace

Result<TokenizerConfig> TokenizerConfig::parse(std::string_view json) {
  const TextJsonLimits limits{kMaxTokenizerConfigBytes, 32, 2'000'000};
  MOTLEY_ASSIGN_OR_RETURN(const Json config, parse_json(json, limits));
  if (!config.is_object()) return corrupt("a tokenizer configuration must be a JSON object");
  TokenizerConfig out;
  MOTLEY_ASSIGN_OR_RETURN(out.bos_token, token_field(config, "bos_token"));
  MOTLEY_ASSIGN_OR_RETURN(out.eos_token, token_field(config, "eos_token"));
  MOTLEY_ASSIGN_OR_RETURN(out.pad_token, token_field(config, "pad_token"));
  MOTLEY_ASSIGN_OR_RETURN(out.add_bos_token, flag_field(config, "add_bos_token"));
  MOTLEY_ASSIGN_OR_RETURN(out.add_eos_token, flag_field(config, "add_eos_token"));
  MOTLEY_RETURN_IF_ERROR(read_templates(config, out));
  MOTLEY_RETURN_IF_ERROR(read_added_tokens(config, out));
  return out;
}

Result<TokenizerConfig> TokenizerConfig::load_directory(const ModelDirectory& directory) {
  constexpr std::string_view kConfigName = "tokenizer_config.json";
  constexpr std::string_view kTemplateName = "chat_template.jinja";
  TokenizerConfig out;
  if (directory.contains(kConfigName)) {
    const std::string path = fmt::format("{}/{}", directory.path(), kConfigName);
    MOTLEY_ASSIGN_OR_RETURN(
        const std::string json,
        directory.read_text(kConfigName, static_cast<int64_t>(kMaxTokenizerConfigBytes)));
    Result<TokenizerConfig> parsed = parse(json);
    if (!parsed.is_ok()) return parsed.status().with_context(path);
    out = std::move(parsed).value();
    for (NamedChatTemplate& entry : out.chat_templates) entry.file = path;
  }
  if (directory.contains(kTemplateName)) {
    MOTLEY_ASSIGN_OR_RETURN(
        std::string source,
        directory.read_text(kTemplateName, static_cast<int64_t>(kMaxChatTemplateBytes)));
    std::erase_if(out.chat_templates, [](const auto& entry) { return entry.name == "default"; });
    out.chat_templates.push_back(
        {"default", std::move(source), fmt::format("{}/{}", directory.path(), kTemplateName)});
  }
  return out;
}

const NamedChatTemplate* TokenizerConfig::find_template(std::string_view name) const {
  for (const NamedChatTemplate& entry : chat_templates) {
    if (entry.name == name) return &entry;
  }
  return nullptr;
}

const std::string* TokenizerConfig::chat_template(std::string_view name) const {
  const NamedChatTemplate* found = find_template(name);
  return found == nullptr ? nullptr : &found->source;
}

Status TokenizerConfig::check_against(const Tokenizer& tokenizer) const {
  for (const auto& [id, content] : added_tokens) {
    if (tokenizer.token_id(content) != id) {
      return corrupt(
          fmt::format("tokenizer_config.json gives token {} a text that tokenizer.json "
                      "does not; the two files belong to different models",
                      id));
    }
  }
  const std::pair<const char*, const std::optional<std::string>*> named[] = {
      {"bos_token", &bos_token}, {"eos_token", &eos_token}, {"pad_token", &pad_token}};
  for (const auto& [name, token] : named) {
    if (token->has_value() && !tokenizer.token_id(**token)) {
      return corrupt(fmt::format("tokenizer_config.json: the {} is not in tokenizer.json", name));
    }
  }
  return Status::ok();
}

}  // namespace motley
