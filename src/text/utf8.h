// UTF-8 decoding, encoding and repair.
//
// Repair follows the WHATWG Encoding Standard and Unicode 3.9 "substitution of maximal subparts":
// every maximal ill-formed prefix becomes one U+FFFD. JavaScript's TextDecoder and Rust's
// String::from_utf8_lossy give the same bytes.
// Thread rule: pure functions.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

namespace motley {

// U+FFFD in UTF-8.
inline constexpr std::string_view kReplacementCharacter = "\xEF\xBF\xBD";

enum class Utf8State {
  kValid,       // `length` bytes are one character
  kInvalid,     // `length` bytes (at least 1) can never become a character
  kIncomplete,  // all remaining `length` bytes are the start of a character
};

struct Utf8Step {
  Utf8State state = Utf8State::kInvalid;
  size_t length = 0;
  char32_t code_point = 0xFFFD;
};

// Looks at the first character of `text`, which must not be empty.
Utf8Step next_utf8(std::string_view text);

// REQUIRES: `code_point` is a Unicode scalar value.
void append_utf8(char32_t code_point, std::string& out);

bool is_valid_utf8(std::string_view text);

// Length of the longest valid prefix, in bytes.
size_t valid_utf8_prefix(std::string_view text);

// The text with every ill-formed part replaced; valid text comes back unchanged. O(n).
std::string replace_invalid_utf8(std::string_view text);

// The beginning of a text for an error line: control characters become '?', whole characters only,
// "..." where it was cut.
std::string printable_excerpt(std::string_view text, size_t max_bytes = 60);

}  // namespace motley
