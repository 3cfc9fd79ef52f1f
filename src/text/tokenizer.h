// Text to tokens and back: byte-level byte pair encoding from a Hugging Face tokenizer.json.
//
// encode: invalid UTF-8 becomes U+FFFD (see utf8.h; the bytes are those that TextDecoder in
// JavaScript and from_utf8_lossy in Rust give) -> added tokens (added_tokens.h) -> NFC ->
// pre-tokenizer (pre_tokenizer.h) -> merges (bpe.h).
// What the file asks for and this class cannot do exactly is refused by name when it is loaded.
//
// Two differences from the Rust library, both deliberate: ids of added tokens are those of the file
// (Rust renumbers after gaps), and an added token decodes to its own text (Rust reads "é" or "Ġ" in
// it as bytes).
// Ownership: owns its tables. Thread rule: immutable after load; any number of threads may use it.
#pragma once

#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"
#include "text/token_id.h"

namespace motley {

// Longer texts are refused: positions inside are 32 bits wide.
inline constexpr size_t kMaxEncodeBytes = size_t{1} << 30;

struct EncodeOptions {
  // false: special tokens in the text are ordinary characters (text from strangers). Added tokens
  // that are not special, such as "<think>" in Qwen vocabularies, are recognised all the same.
  bool parse_special = true;
  // true: put the tokens of the file's TemplateProcessing around the text.
  bool add_special = false;
};

class Tokenizer {
 public:
  // Reads the content of a tokenizer.json. Errors are one line and name the field.
  static Result<Tokenizer> parse(std::string_view json);
  // The same from a file of the user's own; errors name the path. A model's tokenizer.json is read
  // through its ModelDirectory (text_model.h).
  static Result<Tokenizer> load(const std::string& path);

  Tokenizer(Tokenizer&&) noexcept;
  Tokenizer& operator=(Tokenizer&&) noexcept;
  ~Tokenizer();

  // Fails only for a text over kMaxEncodeBytes or one that exhausts a regex (regex.h).
  Result<std::vector<TokenId>> encode(std::string_view text, EncodeOptions options = {}) const;

  // Valid UTF-8: bytes that form no character become U+FFFD. Ids without a token give nothing.
  std::string decode(std::span<const TokenId> tokens, bool skip_special) const;

  // The bytes a token stands for, often a part of a character; "" for an id without a token.
  std::string_view token_bytes(TokenId id) const;

  // By the spelling in the file: "<|im_end|>", "Ġthe".
  std::optional<TokenId> token_id(std::string_view spelling) const;

  // One more than the largest id. A model's vocabulary may be padded beyond it.
  size_t vocab_size() const;
  bool has_token(TokenId id) const;
  bool is_special(TokenId id) const;
  bool is_added(TokenId id) const;

 private:
  friend class TokenizerLoader;
  struct Tables;
  explicit Tokenizer(std::unique_ptr<const Tables> tables);
  std::unique_ptr<const Tables> tables_;
};

}  // namespace motley
