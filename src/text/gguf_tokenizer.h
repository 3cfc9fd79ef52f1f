// The tokenizer of a GGUF file: tokenizer.ggml.* as the tokenizer.json that says the same.
//
// Only byte-level BPE (tokenizer.ggml.model gpt2) whose pre-tokenizer (tokenizer.ggml.pre) this
// build knows; others are refused by name. Token types: 1 ordinary, 3 special, 4 added and not
// special, 5 unused. Source: llama.cpp src/llama-vocab.cpp and gguf-py/gguf/vocab.py.
// Thread rule: pure functions. Errors name the key.
#pragma once

#include <string>

#include "base/status.h"
#include "spec/gguf_metadata.h"
#include "text/tokenizer_config.h"

namespace motley {

// The text of a tokenizer.json.
Result<std::string> gguf_tokenizer_json(const GgufMetadata& metadata);

// Tokens that begin and end a text, and the chat templates (tokenizer.chat_template); `file` is
// named in errors of the templates.
Result<TokenizerConfig> gguf_tokenizer_config(const GgufMetadata& metadata,
                                              const std::string& file);

}  // namespace motley
