#include "text/text_model.h"

#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "io/file.h"
#include "io/gguf_files.h"
#include "text/gguf_tokenizer.h"
#include "text/tokenizer_json.h"

namespace motley {
namespace {

// "DIR/chat_template.jinja: chat template".
std::string template_name(const TokenizerConfig& config) {
  const NamedChatTemplate* found = config.find_template();
  if (found == nullptr || found->file.empty()) return "chat template";
  return found->file + ": chat template";
}

// Parses the default template; one that this build cannot parse leaves raw text.
TextModel with_template(TextModel model) {
  const std::string* source = model.config.chat_template();
  if (source == nullptr) return model;
  Result<ChatTemplate> parsed = ChatTemplate::parse(*source);
  if (parsed.is_ok()) {
    model.chat_template.emplace(std::move(parsed).value());
  } else {
    model.chat_template_error = parsed.status().with_context(template_name(model.config));
  }
  return model;
}

Result<TextModel> text_model_of(const GgufMetadata& metadata, const std::string& path) {
  Result<std::string> json = gguf_tokenizer_json(metadata);
  if (!json.is_ok()) return json.status().with_context(path);
  Result<Tokenizer> tokenizer = Tokenizer::parse(*json);
  if (!tokenizer.is_ok()) return tokenizer.status().with_context(path);
  TextModel model{std::move(tokenizer).value(), std::nullopt, {}, path, {}};
  Result<TokenizerConfig> config = gguf_tokenizer_config(metadata, path);
  if (!config.is_ok()) return config.status().with_context(path);
  model.config = std::move(config).value();
  return with_template(std::move(model));
}

void set_token(const char* name, const std::optional<std::string>& token,
               nlohmann::ordered_json* context) {
  if (token) (*context)[name] = *token;
}

}  // namespace

std::vector<std::string> TextModel::thinking_switches() const {
  std::vector<std::string> switches;
  if (!chat_template) return switches;
  const std::vector<std::string> variables = chat_template->variables();
  for (const char* name : {"enable_thinking", "thinking"}) {
    if (std::find(variables.begin(), variables.end(), name) != variables.end()) {
      switches.emplace_back(name);
    }
  }
  return switches;
}

std::vector<TokenId> TextModel::stop_tokens(std::span<const int32_t> from_model) const {
  std::vector<TokenId> tokens(from_model.begin(), from_model.end());
  if (config.eos_token) {
    const auto id = tokenizer.token_id(*config.eos_token);
    if (id && std::find(tokens.begin(), tokens.end(), *id) == tokens.end()) tokens.push_back(*id);
  }
  return tokens;
}

Result<std::vector<TokenId>> TextModel::encode(std::string_view text, EncodeOptions options) const {
  Result<std::vector<TokenId>> tokens = tokenizer.encode(text, options);
  // A text that is too long is the caller's affair, whatever the file says.
  if (tokens.is_ok() || text.size() > kMaxEncodeBytes) return tokens;
  return tokens.status().with_context(tokenizer_path);
}

Result<std::vector<TokenId>> TextModel::encode_prompt(std::string_view prompt,
                                                      bool rendered) const {
  MOTLEY_ASSIGN_OR_RETURN(std::vector<TokenId> tokens, encode(prompt));
  if (rendered || !config.add_bos_token || !config.bos_token) return tokens;
  const auto bos = tokenizer.token_id(*config.bos_token);
  if (bos && (tokens.empty() || tokens.front() != *bos)) tokens.insert(tokens.begin(), *bos);
  return tokens;
}

Result<std::string> render_chat(const TextModel& model, const ChatRequest& request) {
  if (!model.chat_template) {
    MOTLEY_RETURN_IF_ERROR(model.chat_template_error);
    return unsupported("the model has no chat template; give it raw text instead (--raw)");
  }
  nlohmann::ordered_json context = nlohmann::ordered_json::object();
  context["messages"] = *request.messages;
  if (request.tools != nullptr) context["tools"] = *request.tools;
  context["add_generation_prompt"] = request.add_generation_prompt;
  set_token("bos_token", model.config.bos_token, &context);
  set_token("eos_token", model.config.eos_token, &context);
  set_token("pad_token", model.config.pad_token, &context);
  if (request.think) {
    const std::vector<std::string> switches = model.thinking_switches();
    if (switches.empty()) {
      return unsupported("the chat template has no switch for reasoning; leave out --think");
    }
    for (const std::string& name : switches) context[name] = *request.think;
  }
  Result<std::string> text = model.chat_template->render(context);
  if (!text.is_ok()) return text.status().with_context(template_name(model.config));
  return text;
}

Result<TextModel> load_text_model(const std::string& path) {
  FaultPoints faults;
  MOTLEY_ASSIGN_OR_RETURN(const std::optional<GgufMetadata> gguf, read_gguf_metadata(faults, path));
  if (gguf) return text_model_of(*gguf, path);
  MOTLEY_ASSIGN_OR_RETURN(const ModelDirectory directory, ModelDirectory::open(faults, path));
  MOTLEY_ASSIGN_OR_RETURN(
      const std::string json,
      directory.read_text("tokenizer.json", static_cast<int64_t>(kMaxTokenizerJsonBytes)));
  const std::string tokenizer_path = path + "/tokenizer.json";
  Result<Tokenizer> tokenizer = Tokenizer::parse(json);
  if (!tokenizer.is_ok()) return tokenizer.status().with_context(tokenizer_path);
  TextModel model{std::move(tokenizer).value(), std::nullopt, {}, tokenizer_path, {}};
  MOTLEY_ASSIGN_OR_RETURN(model.config, TokenizerConfig::load_directory(directory));
  const Status agreement = model.config.check_against(model.tokenizer);
  if (!agreement.is_ok()) return agreement.with_context(path);
  return with_template(std::move(model));
}

}  // namespace motley
