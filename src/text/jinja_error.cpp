#include "text/jinja_error.h"

#include <fmt/format.h>

#include "text/jinja_unicode.h"

namespace motley::jinja {
namespace {

constexpr std::size_t kMaxMessageCharacters = 400;

bool breaks_line(char32_t c) {
  return c < 0x20 || (c >= 0x7F && c < 0xA0) || c == 0x2028 || c == 0x2029;
}

}  // namespace

std::string error_line(int line, std::string_view message) {
  std::string text;
  std::size_t position = 0;
  for (std::size_t count = 0; position < message.size() && count < kMaxMessageCharacters; ++count) {
    const char32_t c = next_code_point(message, position);
    append_utf8(text, breaks_line(c) ? U' ' : c);
  }
  return fmt::format("line {}: {}{}", line, text, position < message.size() ? "..." : "");
}

}  // namespace motley::jinja
