#include "text/gguf_tokenizer.h"

#include <fmt/format.h>

#include <array>
#include <optional>
#include <string_view>

#include "spec/config_json.h"
#include "text/token_id.h"

namespace motley {
namespace {

struct PreTokenizer {
  std::string_view name;
  std::string_view regex;
  bool normalizes;  // to NFC
};

// The expressions of the models' tokenizer.json, which the names stand for.
constexpr std::array kPreTokenizers = {
    PreTokenizer{"qwen2",
                 R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}|)"
                 R"( ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)",
                 true},
    PreTokenizer{"qwen35",
                 R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?[\p{L}\p{M}]+|\p{N}|)"
                 R"( ?[^\s\p{L}\p{M}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)",
                 true},
};

enum TokenType : int64_t { kNormal = 1, kControl = 3, kUserDefined = 4, kUnused = 5 };

Result<PreTokenizer> find_pre_tokenizer(const GgufMetadata& metadata) {
  MOTLEY_ASSIGN_OR_RETURN(const std::string_view model, metadata.text("tokenizer.ggml.model"));
  if (model != "gpt2") {
    return unsupported(
        fmt::format("tokenizer.ggml.model {} is not supported; gpt2 is", json_excerpt(model)));
  }
  MOTLEY_ASSIGN_OR_RETURN(const std::string_view name, metadata.text("tokenizer.ggml.pre"));
  std::string known;
  for (const PreTokenizer& entry : kPreTokenizers) {
    if (entry.name == name) return entry;
    known += fmt::format("{}{}", known.empty() ? "" : ", ", entry.name);
  }
  return unsupported(fmt::format("tokenizer.ggml.pre {} is not supported; known are {}",
                                 json_excerpt(name), known));
}

// Ordinary tokens are the vocabulary; the others are added tokens.
class Tokens {
 public:
  Status read(const GgufMetadata& metadata) {
    MOTLEY_ASSIGN_OR_RETURN(const std::vector<std::string>* tokens,
                            metadata.texts("tokenizer.ggml.tokens"));
    MOTLEY_ASSIGN_OR_RETURN(const std::vector<int64_t>* types,
                            metadata.integers("tokenizer.ggml.token_type"));
    if (tokens->size() != types->size() || std::ssize(*tokens) > kTokenIdLimit) {
      return corrupt(fmt::format("tokenizer.ggml.tokens and token_type have {} and {} entries",
                                 tokens->size(), types->size()));
    }
    for (size_t id = 0; id < tokens->size(); ++id) {
      MOTLEY_RETURN_IF_ERROR(add(id, (*tokens)[id], (*types)[id]));
    }
    return Status::ok();
  }

  std::string vocabulary;
  std::string added;

 private:
  Status add(size_t id, const std::string& text, int64_t type) {
    switch (type) {
      case kNormal:
        vocabulary += fmt::format("{}{}:{}", vocabulary.empty() ? "" : ",", json_quote(text), id);
        return Status::ok();
      case kControl:
      case kUserDefined:
        added += fmt::format(
            R"({}{{"id":{},"content":{},"single_word":false,"lstrip":false,"rstrip":false,)"
            R"("normalized":false,"special":{}}})",
            added.empty() ? "" : ",", id, json_quote(text), type == kControl);
        return Status::ok();
      case kUnused:
        return Status::ok();
      default:
        return unsupported(
            fmt::format("tokenizer.ggml.token_type: token {} has type {}, which "
                        "is not supported",
                        id, type));
    }
  }
};

// "left right", by rank. Spellings of byte-level tokens hold no space.
Result<std::string> read_merges(const GgufMetadata& metadata) {
  MOTLEY_ASSIGN_OR_RETURN(const std::vector<std::string>* merges,
                          metadata.texts("tokenizer.ggml.merges"));
  std::string list;
  for (size_t i = 0; i < merges->size(); ++i) {
    const std::string_view merge = (*merges)[i];
    const size_t space = merge.find(' ');
    if (space == merge.npos || space == 0 || space + 1 == merge.size()) {
      return corrupt(fmt::format("tokenizer.ggml.merges: entry {} is not two tokens: {}", i,
                                 json_excerpt(merge)));
    }
    list += fmt::format("{}[{},{}]", list.empty() ? "" : ",", json_quote(merge.substr(0, space)),
                        json_quote(merge.substr(space + 1)));
  }
  return list;
}

Result<std::optional<std::string>> token_at(const GgufMetadata& metadata, std::string_view key) {
  if (!metadata.has(key)) return std::optional<std::string>();
  MOTLEY_ASSIGN_OR_RETURN(const std::vector<std::string>* tokens,
                          metadata.texts("tokenizer.ggml.tokens"));
  MOTLEY_ASSIGN_OR_RETURN(const int64_t id, metadata.integer(key, 0, std::ssize(*tokens) - 1));
  return std::optional<std::string>((*tokens)[static_cast<size_t>(id)]);
}

}  // namespace

Result<std::string> gguf_tokenizer_json(const GgufMetadata& metadata) {
  MOTLEY_ASSIGN_OR_RETURN(const PreTokenizer pre, find_pre_tokenizer(metadata));
  MOTLEY_ASSIGN_OR_RETURN(const std::string merges, read_merges(metadata));
  Tokens tokens;
  MOTLEY_RETURN_IF_ERROR(tokens.read(metadata));
  return fmt::format(
      R"({{"version":"1.0","normalizer":{},"added_tokens":[{}],)"
      R"("pre_tokenizer":{{"type":"Sequence","pretokenizers":[)"
      R"({{"type":"Split","pattern":{{"Regex":{}}},"behavior":"Isolated","invert":false}},)"
      R"({{"type":"ByteLevel","add_prefix_space":false,"trim_offsets":false,)"
      R"("use_regex":false}}]}},"decoder":{{"type":"ByteLevel"}},)"
      R"("model":{{"type":"BPE","vocab":{{{}}},"merges":[{}]}}}})",
      pre.normalizes ? R"({"type":"NFC"})" : "null", tokens.added, json_quote(pre.regex),
      tokens.vocabulary, merges);
}

Result<TokenizerConfig> gguf_tokenizer_config(const GgufMetadata& metadata,
                                              const std::string& file) {
  TokenizerConfig config;
  MOTLEY_ASSIGN_OR_RETURN(config.bos_token, token_at(metadata, "tokenizer.ggml.bos_token_id"));
  MOTLEY_ASSIGN_OR_RETURN(config.eos_token, token_at(metadata, "tokenizer.ggml.eos_token_id"));
  MOTLEY_ASSIGN_OR_RETURN(config.pad_token, token_at(metadata, "tokenizer.ggml.padding_token_id"));
  MOTLEY_ASSIGN_OR_RETURN(config.add_bos_token,
                          metadata.boolean_or("tokenizer.ggml.add_bos_token", false));
  MOTLEY_ASSIGN_OR_RETURN(config.add_eos_token,
                          metadata.boolean_or("tokenizer.ggml.add_eos_token", false));
  constexpr std::string_view kTemplate = "tokenizer.chat_template";
  for (const auto& [key, value] : metadata.entries()) {
    if (!key.starts_with(kTemplate)) continue;
    const bool is_default = key == kTemplate;
    if (!is_default && (key[kTemplate.size()] != '.' || key.size() > kTemplate.size() + 65))
      continue;
    const auto* source = std::get_if<std::string>(&value);
    if (source == nullptr || source->size() > kMaxChatTemplateBytes ||
        config.chat_templates.size() >= kMaxChatTemplates) {
      return corrupt(fmt::format("key '{}': must be one of at most {} texts of at most {} bytes",
                                 key, kMaxChatTemplates, kMaxChatTemplateBytes));
    }
    config.chat_templates.push_back(
        {is_default ? "default" : key.substr(kTemplate.size() + 1), *source, file});
  }
  return config;
}

}  // namespace motley
