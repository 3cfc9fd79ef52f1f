// Unicode normalisation form C and the character classes that the tokenizer needs.
//
// Wraps utf8proc (Unicode 14). utf8proc's own driver sorts combining marks in quadratic time, so
// only its tables and its composition step are used and the sort is done here.
// Source: UAX #15. Thread rule: pure functions.
#pragma once

#include <string>
#include <string_view>

namespace motley {

// REQUIRES: `text` is valid UTF-8. O(n log n) in the longest run of combining marks.
std::string normalize_nfc(std::string_view text);

// The White_Space property (what \s means in the Hugging Face libraries).
bool is_white_space(char32_t code_point);

// \w of UTS #18: alphabetic, marks, decimal digits, connector punctuation, join controls.
bool is_word_character(char32_t code_point);

}  // namespace motley
