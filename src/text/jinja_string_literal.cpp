#include "text/jinja_string_literal.h"

#include <fmt/format.h>

#include "text/jinja_unicode.h"

namespace motley::jinja {
namespace {

int hex_digit(char c) {
  if (c >= '0' && c <= '9') return c - '0';
  if (c >= 'a' && c <= 'f') return c - 'a' + 10;
  if (c >= 'A' && c <= 'F') return c - 'A' + 10;
  return -1;
}

char simple_escape(char c) {
  switch (c) {
    case 'a':
      return '\a';
    case 'b':
      return '\b';
    case 'f':
      return '\f';
    case 'n':
      return '\n';
    case 'r':
      return '\r';
    case 't':
      return '\t';
    case 'v':
      return '\v';
    case '\\':
    case '\'':
    case '"':
      return c;
    default:
      return '\0';
  }
}

// `digits` hex digits at `position`, which moves past them.
Result<char32_t> hex_code_point(std::string_view body, std::size_t& position, int digits) {
  char32_t value = 0;
  for (int i = 0; i < digits; ++i, ++position) {
    const int digit = position < body.size() ? hex_digit(body[position]) : -1;
    if (digit < 0) return invalid_argument("an escape in a string has too few hex digits");
    value = value * 16 + static_cast<char32_t>(digit);
  }
  if (value > 0x10FFFF || (value >= 0xD800 && value <= 0xDFFF)) {
    return invalid_argument(fmt::format("an escape in a string is not a character: U+{:04X}",
                                        static_cast<std::uint32_t>(value)));
  }
  return value;
}

void append_octal(std::string& out, std::string_view body, std::size_t& position) {
  char32_t value = 0;
  for (int i = 0; i < 3 && position < body.size(); ++i, ++position) {
    const char c = body[position];
    if (c < '0' || c > '7') break;
    value = value * 8 + static_cast<char32_t>(c - '0');
  }
  append_utf8(out, value);
}

}  // namespace

std::string normalize_newlines(std::string_view text) {
  std::string out;
  out.reserve(text.size());
  for (std::size_t i = 0; i < text.size(); ++i) {
    if (text[i] != '\r') {
      out += text[i];
      continue;
    }
    out += '\n';
    if (i + 1 < text.size() && text[i + 1] == '\n') ++i;
  }
  return out;
}

Result<std::string> decode_string_literal(std::string_view body) {
  std::string out;
  std::size_t i = 0;
  while (i < body.size()) {
    if (body[i] != '\\') {
      out += body[i++];
      continue;
    }
    if (i + 1 >= body.size()) return invalid_argument("a string ends in a lone backslash");
    const char c = body[i + 1];
    i += 2;
    if (c == '\n') continue;
    if (const char simple = simple_escape(c); simple != '\0') {
      out += simple;
    } else if (c >= '0' && c <= '7') {
      --i;
      append_octal(out, body, i);
    } else if (c == 'x' || c == 'u' || c == 'U') {
      const int digits = c == 'x' ? 2 : (c == 'u' ? 4 : 8);
      MOTLEY_ASSIGN_OR_RETURN(const char32_t value, hex_code_point(body, i, digits));
      append_utf8(out, value);
    } else if (c == 'N') {
      return invalid_argument("named characters (\\N{...}) in strings are not supported");
    } else {
      out += '\\';
      out += c;
    }
  }
  return out;
}

}  // namespace motley::jinja
