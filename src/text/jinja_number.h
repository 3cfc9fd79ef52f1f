// Numbers as Python reads and prints them.
//
// Integers have 64 bits here; what does not fit is refused, never rounded.
// Thread rule: pure functions.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace motley::jinja {

// int(text, base): spaces around, a sign, `_` between digits. Base 0 reads 0x, 0o and 0b prefixes.
// Nothing when the text is not such a number or does not fit.
std::optional<std::int64_t> parse_integer(std::string_view text, int base);

// float(text), including "inf" and "nan".
std::optional<double> parse_float(std::string_view text);

// repr(value): the shortest text that reads back the same, with a ".0" for whole numbers.
std::string float_repr(double value);

}  // namespace motley::jinja
