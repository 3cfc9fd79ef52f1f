// Code-point level text operations with Python's `str` meaning, on UTF-8.
//
// All functions take valid UTF-8 (the lexer and the context reader refuse anything else); on broken
// input they yield U+FFFD per byte and never read out of bounds. Character classes and simple case
// maps come from utf8proc; the mappings to several characters follow Unicode's SpecialCasing.
//
// Thread rule: pure functions.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

namespace motley::jinja {

bool is_valid_utf8(std::string_view text);
std::size_t count_code_points(std::string_view text);
// Decodes at `position` (< size) and moves it past the character.
char32_t next_code_point(std::string_view text, std::size_t& position);
void append_utf8(std::string& text, char32_t code_point);
std::vector<char32_t> decode_utf8(std::string_view text);
std::string encode_utf8(const std::vector<char32_t>& code_points);
// Byte offset of the code point number `index`; the size when there are fewer.
std::size_t byte_offset(std::string_view text, std::size_t index, bool is_ascii);

// str.isspace of one character; also what `\s` matches.
bool is_space(char32_t code_point);
bool is_printable(char32_t code_point);
bool is_alpha(char32_t code_point);
bool is_decimal(char32_t code_point);
bool is_digit(char32_t code_point);
bool is_numeric(char32_t code_point);
bool is_upper(char32_t code_point);
bool is_lower(char32_t code_point);
bool is_title(char32_t code_point);
bool is_word(char32_t code_point);  // `\w`

std::string to_upper(std::string_view text);
std::string to_lower(std::string_view text);
std::string to_title(std::string_view text);        // str.title
std::string to_capitalized(std::string_view text);  // str.capitalize
std::string to_swapped_case(std::string_view text);
std::string to_casefold(std::string_view text);

enum class Side { kBoth, kLeft, kRight };
std::string_view strip_space(std::string_view text, Side side = Side::kBoth);
std::string_view strip_characters(std::string_view text, std::string_view characters, Side side);

// str.splitlines.
std::vector<std::string_view> split_lines(std::string_view text, bool keep_ends);

}  // namespace motley::jinja
