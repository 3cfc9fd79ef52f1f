#include "text/jinja_number.h"

#include <fmt/format.h>

#include <array>
#include <charconv>
#include <cmath>
#include <limits>

#include "text/jinja_unicode.h"

namespace motley::jinja {
namespace {

// Removes single underscores between digits; nothing when one stands elsewhere.
std::optional<std::string> without_underscores(std::string_view text, bool after_prefix) {
  const auto is_alnum = [](char c) {
    return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z');
  };
  std::string out;
  for (std::size_t i = 0; i < text.size(); ++i) {
    if (text[i] != '_') {
      out += text[i];
      continue;
    }
    const bool left = i > 0 ? is_alnum(text[i - 1]) : after_prefix;
    if (!left || i + 1 >= text.size() || !is_alnum(text[i + 1])) return std::nullopt;
  }
  return out;
}

int prefix_base(std::string_view text) {
  if (text.size() < 2 || text[0] != '0') return 0;
  switch (text[1] | 0x20) {
    case 'x':
      return 16;
    case 'o':
      return 8;
    case 'b':
      return 2;
    default:
      return 0;
  }
}

std::string lower_ascii(std::string_view text) {
  std::string out(text);
  for (char& c : out) {
    if (c >= 'A' && c <= 'Z') c = static_cast<char>(c - 'A' + 'a');
  }
  return out;
}

}  // namespace

std::optional<std::int64_t> parse_integer(std::string_view text, int base) {
  text = strip_space(text);
  bool negative = false;
  if (!text.empty() && (text[0] == '-' || text[0] == '+')) {
    negative = text[0] == '-';
    text.remove_prefix(1);
  }
  const int prefix = prefix_base(text);
  const bool prefixed = prefix != 0 && (base == 0 || base == prefix);
  if (prefixed) {
    text.remove_prefix(2);
    base = prefix;
  }
  const bool decimal_literal = base == 0;
  if (decimal_literal) base = 10;
  if (base < 2 || base > 36) return std::nullopt;
  const std::optional<std::string> digits = without_underscores(text, prefixed);
  if (!digits || digits->empty() || (*digits)[0] == '-') return std::nullopt;
  if (decimal_literal && digits->size() > 1 && (*digits)[0] == '0' &&
      digits->find_first_not_of('0') != std::string::npos) {
    return std::nullopt;
  }
  std::uint64_t magnitude = 0;
  const char* end = digits->data() + digits->size();
  const auto [stop, error] = std::from_chars(digits->data(), end, magnitude, base);
  if (error != std::errc() || stop != end) return std::nullopt;
  constexpr auto kMax = static_cast<std::uint64_t>(std::numeric_limits<std::int64_t>::max());
  if (magnitude > kMax + (negative ? 1 : 0)) return std::nullopt;
  return static_cast<std::int64_t>(negative ? 0 - magnitude : magnitude);
}

std::optional<double> parse_float(std::string_view text) {
  text = strip_space(text);
  bool negative = false;
  if (!text.empty() && (text[0] == '-' || text[0] == '+')) {
    negative = text[0] == '-';
    text.remove_prefix(1);
  }
  const std::optional<std::string> digits = without_underscores(text, false);
  if (!digits || digits->empty()) return std::nullopt;
  const std::string lower = lower_ascii(*digits);
  double value = 0;
  if (lower == "inf" || lower == "infinity") {
    value = std::numeric_limits<double>::infinity();
  } else if (lower == "nan") {
    value = std::numeric_limits<double>::quiet_NaN();
  } else {
    if (lower[0] != '.' && (lower[0] < '0' || lower[0] > '9')) return std::nullopt;
    const char* end = lower.data() + lower.size();
    const auto [stop, error] = std::from_chars(lower.data(), end, value);
    if (stop != end) return std::nullopt;
    if (error == std::errc::result_out_of_range) {
      // from_chars does not say whether it was too large or too small.
      const std::size_t exponent = lower.find("e-");
      value = exponent != std::string::npos ? 0.0 : std::numeric_limits<double>::infinity();
    } else if (error != std::errc()) {
      return std::nullopt;
    }
  }
  return negative ? -value : value;
}

std::string float_repr(double value) {
  if (std::isnan(value)) return "nan";
  if (std::isinf(value)) return value < 0 ? "-inf" : "inf";
  std::array<char, 32> buffer{};
  const auto made = std::to_chars(buffer.data(), buffer.data() + buffer.size(), value,
                                  std::chars_format::scientific);
  const std::string_view text(buffer.data(), static_cast<std::size_t>(made.ptr - buffer.data()));
  const std::size_t mark = text.find('e');
  std::string_view mantissa = text.substr(0, mark);
  int exponent = 0;
  const char* exponent_begin = text.data() + mark + (text[mark + 1] == '+' ? 2 : 1);
  std::from_chars(exponent_begin, text.data() + text.size(), exponent);
  std::string sign;
  if (mantissa[0] == '-') {
    sign = "-";
    mantissa.remove_prefix(1);
  }
  std::string digits(1, mantissa[0]);
  if (mantissa.size() > 2) digits += mantissa.substr(2);
  const int count = static_cast<int>(digits.size());
  if (exponent < -4 || exponent >= 16) {
    if (count > 1) digits.insert(1, ".");
    return fmt::format("{}{}e{}{:02d}", sign, digits, exponent < 0 ? '-' : '+', std::abs(exponent));
  }
  if (exponent < 0)
    return sign + "0." + std::string(static_cast<std::size_t>(-exponent - 1), '0') + digits;
  if (count <= exponent + 1) {
    return sign + digits + std::string(static_cast<std::size_t>(exponent + 1 - count), '0') + ".0";
  }
  digits.insert(static_cast<std::size_t>(exponent + 1), ".");
  return sign + digits;
}

}  // namespace motley::jinja
