// String literals of the template language: Python's escapes.
//
// Thread rule: pure functions.
#pragma once

#include <string>
#include <string_view>

#include "base/status.h"

namespace motley::jinja {

// "\r\n" and "\r" become "\n".
std::string normalize_newlines(std::string_view text);

// `body` is the text between the quotes. Unknown escapes are kept as they stand; named characters
// (\N{...}) and surrogates are refused.
Result<std::string> decode_string_literal(std::string_view body);

}  // namespace motley::jinja
