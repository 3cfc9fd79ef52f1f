// Splits a template into tokens, with the white space rules of chat templates: trim_blocks and
// lstrip_blocks on, one final newline dropped, `-` and `+` marks, raw blocks, comments. Format:
// the Jinja2 3.1 template designer documentation.
//
// Thread rule: pure function. Errors: "line N: ..." (kInvalidArgument).
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"

namespace motley::jinja {

enum class TokenKind : std::uint8_t {
  kData,  // text to be copied to the output
  kBlockBegin,
  kBlockEnd,
  kVariableBegin,
  kVariableEnd,
  kName,
  kString,  // escapes already decoded
  kInteger,
  kFloat,
  kOperator,
  kEnd,
};

struct Token {
  TokenKind kind = TokenKind::kEnd;
  int line = 1;
  std::string text;

  bool is(TokenKind wanted, std::string_view wanted_text) const {
    return kind == wanted && text == wanted_text;
  }
};

// `source` must be valid UTF-8. The last token is kEnd.
Result<std::vector<Token>> tokenize(std::string_view source);

}  // namespace motley::jinja
