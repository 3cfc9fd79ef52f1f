#include "text/jinja_format_spec.h"

#include <fmt/format.h>

#include <array>
#include <charconv>
#include <cmath>
#include <cstdio>

#include "text/jinja_number.h"
#include "text/jinja_unicode.h"

namespace motley::jinja {
namespace {

constexpr int kMaxPrecision = 100;

std::string integer_digits(std::uint64_t magnitude, char type) {
  std::array<char, 65> buffer{};
  const int base = type == 'x' || type == 'X' ? 16 : (type == 'o' ? 8 : (type == 'b' ? 2 : 10));
  const auto made = std::to_chars(buffer.data(), buffer.data() + buffer.size(), magnitude, base);
  std::string digits(buffer.data(), made.ptr);
  if (type == 'X') {
    for (char& c : digits) c = static_cast<char>(c >= 'a' ? c - 'a' + 'A' : c);
  }
  return digits;
}

// |value| under a C conversion; the caller adds the sign.
std::string real_digits(double magnitude, char type, int precision, bool alternate) {
  const std::string conversion = fmt::format("%{}.{}{}", alternate ? "#" : "", precision, type);
  const int size = std::snprintf(nullptr, 0, conversion.c_str(), magnitude);
  std::string text(static_cast<std::size_t>(size) + 1, '\0');
  std::snprintf(text.data(), text.size(), conversion.c_str(), magnitude);
  text.pop_back();
  return text;
}

std::string grouped(const std::string& digits, char separator) {
  const std::size_t whole = std::min(digits.find('.'), digits.size());
  std::string out;
  for (std::size_t i = 0; i < digits.size(); ++i) {
    if (i > 0 && i < whole && (whole - i) % 3 == 0) out += separator;
    out += digits[i];
  }
  return out;
}

bool is_real_type(char type) {
  return std::string_view("eEfFgG%").find(type) != std::string_view::npos;
}

std::string real_text(double value, const FormatSpec& spec) {
  double magnitude = std::fabs(value);
  if (spec.type == '%') {
    return real_digits(magnitude * 100.0, 'f', spec.precision < 0 ? 6 : spec.precision,
                       spec.alternate) +
           "%";
  }
  if (spec.type == '\0' && spec.precision < 0) return float_repr(magnitude);
  if (spec.type == '\0') {
    // Like 'g', but a number without an exponent keeps a digit after the point.
    std::string text = real_digits(magnitude, 'g', std::max(spec.precision, 1), spec.alternate);
    if (text.find_first_of(".en") == std::string::npos) text += ".0";
    return text;
  }
  return real_digits(magnitude, spec.type, spec.precision < 0 ? 6 : spec.precision, spec.alternate);
}

}  // namespace

void append_padded(TextBuilder& out, std::string_view text, const FormatSpec& spec,
                   char default_align) {
  if (spec.precision >= 0) {
    text = text.substr(0, byte_offset(text, static_cast<std::size_t>(spec.precision), false));
  }
  const auto length = static_cast<std::int64_t>(count_code_points(text));
  const std::int64_t padding = std::max<std::int64_t>(spec.width - length, 0);
  const char align = spec.align == '\0' ? default_align : spec.align;
  const std::int64_t left = align == '>' ? padding : (align == '^' ? padding / 2 : 0);
  out.add_repeated(spec.fill, left);
  out.add(text);
  out.add_repeated(spec.fill, padding - left);
}

void append_number(Runtime& runtime, TextBuilder& out, const Value& value, const FormatSpec& spec) {
  if (spec.precision > kMaxPrecision) {
    runtime.fail_limit(fmt::format("a precision of {} is over {}", spec.precision, kMaxPrecision));
    return;
  }
  const bool as_real = !value.is_integral() || is_real_type(spec.type);
  const bool type_known =
      as_real ? spec.type == '\0' || is_real_type(spec.type)
              : std::string_view("dxXob").find(spec.type) != std::string_view::npos ||
                    spec.type == '\0';
  if (!type_known || (!as_real && spec.precision >= 0)) {
    runtime.fail(fmt::format("format '{}' does not work for a {}", spec.type, type_name(value)));
    return;
  }
  std::string digits;
  std::string prefix;
  bool negative = false;
  if (as_real) {
    negative = std::signbit(value.as_double());
    digits = real_text(value.as_double(), spec);
  } else {
    negative = value.as_int() < 0;
    const auto bits = static_cast<std::uint64_t>(value.as_int());
    digits = integer_digits(negative ? 0 - bits : bits, spec.type);
    if (spec.alternate && spec.type != 'd' && spec.type != '\0') prefix = {'0', spec.type};
  }
  if (spec.grouping != '\0') digits = grouped(digits, spec.grouping);
  std::string sign = negative ? "-" : (spec.sign == '-' ? "" : std::string(1, spec.sign));
  sign += prefix;
  FormatSpec rest = spec;
  rest.precision = -1;
  if (spec.align == '=') {
    out.add(sign);
    rest.width -= static_cast<std::int64_t>(sign.size());
    rest.align = '>';
    return append_padded(out, digits, rest, '>');
  }
  append_padded(out, sign + digits, rest, '>');
}

}  // namespace motley::jinja
