// Filters over single values: defaults, numbers, JSON.
#include <fmt/format.h>

#include <array>
#include <cmath>
#include <cstdio>
#include <limits>
#include <optional>

#include "text/jinja_builtins.h"
#include "text/jinja_native.h"
#include "text/jinja_number.h"
#include "text/jinja_ops.h"
#include "text/jinja_print.h"

namespace motley::jinja {
namespace {

Value default_value(Runtime& runtime, const Value& self, CallArguments& arguments) {
  const bool replaced = self.is_undefined() || (truthy(argument(arguments, 1)) && !truthy(self));
  if (!replaced) return self;
  const Value& otherwise = argument(arguments, 0);
  return otherwise.is_missing() ? runtime.make_string("") : otherwise;
}

Value length(Runtime& runtime, const Value& self, CallArguments&) {
  const auto size = length_of(self);
  if (!size) return runtime.fail(fmt::format("a {} has no length", type_name(self)));
  return Value::integer(*size);
}

// A double without its fraction, when that fits.
std::optional<std::int64_t> whole_part(double value) {
  const double whole = std::trunc(value);
  if (!(whole >= -0x1p63 && whole < 0x1p63)) return std::nullopt;
  return static_cast<std::int64_t>(whole);
}

Value to_int(Runtime& runtime, const Value& self, CallArguments& arguments) {
  const Value otherwise =
      argument(arguments, 0).is_missing() ? Value::integer(0) : argument(arguments, 0);
  if (self.is_undefined()) return runtime.fail(undefined_message(self));
  if (self.is_integral()) return Value::integer(self.as_int());
  if (self.is(ValueKind::kFloat)) {
    // Python converts nan to the default but refuses infinity.
    if (std::isnan(self.as_double())) return otherwise;
    const auto whole = whole_part(self.as_double());
    return whole ? Value::integer(*whole) : runtime.fail("this number does not fit 64 bits");
  }
  if (!self.is_string()) return otherwise;
  const std::int64_t base = integer_argument(runtime, argument(arguments, 1), 10);
  if (base != 0 && (base < 2 || base > 36)) return otherwise;
  if (const auto parsed = parse_integer(self.text(), static_cast<int>(base))) {
    return Value::integer(*parsed);
  }
  const auto real = parse_float(self.text());
  if (!real || std::isnan(*real) || std::isinf(*real)) return otherwise;
  const auto whole = whole_part(*real);
  return whole ? Value::integer(*whole) : runtime.fail("this number does not fit 64 bits");
}

Value to_float(Runtime& runtime, const Value& self, CallArguments& arguments) {
  if (self.is_undefined()) return runtime.fail(undefined_message(self));
  if (self.is_number()) return Value::real(self.as_double());
  if (self.is_string()) {
    if (const auto parsed = parse_float(self.text())) return Value::real(*parsed);
  }
  return argument(arguments, 0).is_missing() ? Value::real(0.0) : argument(arguments, 0);
}

Value absolute(Runtime& runtime, const Value& self, CallArguments&) {
  if (self.is_integral()) {
    if (self.as_int() == std::numeric_limits<std::int64_t>::min()) {
      return runtime.fail("an integer does not fit 64 bits");
    }
    return Value::integer(std::abs(self.as_int()));
  }
  if (self.is(ValueKind::kFloat)) return Value::real(std::fabs(self.as_double()));
  return runtime.fail(fmt::format("filter 'abs' needs a number, not a {}", type_name(self)));
}

// round(value, digits) of an integer: to tens and hundreds for negative digits, half to even.
Value round_integer(Runtime& runtime, std::int64_t value, std::int64_t digits) {
  if (digits >= 0) return Value::integer(value);
  if (digits < -18) return Value::integer(0);
  std::int64_t unit = 1;
  for (std::int64_t i = digits; i < 0; ++i) unit *= 10;
  std::int64_t quotient = value / unit;
  std::int64_t remainder = value % unit;
  if (remainder < 0) {
    remainder += unit;
    --quotient;
  }
  if (remainder > unit / 2 || (remainder == unit / 2 && (quotient & 1) != 0)) ++quotient;
  std::int64_t rounded = 0;
  if (__builtin_mul_overflow(quotient, unit, &rounded)) {
    return runtime.fail("an integer does not fit 64 bits");
  }
  return Value::integer(rounded);
}

// Correct decimal rounding, half to even on the exact binary value, as Python's round().
double round_real(double value, std::int64_t digits) {
  if (!std::isfinite(value) || digits > 323) return value;
  std::array<char, 800> text{};
  if (digits >= 0) {
    std::snprintf(text.data(), text.size(), "%.*f", static_cast<int>(digits), value);
    return std::strtod(text.data(), nullptr);
  }
  std::snprintf(text.data(), text.size(), "%.17e", value);
  const int exponent = std::atoi(
      std::string_view(text.data()).substr(std::string_view(text.data()).find('e') + 1).data());
  if (digits < -400 || exponent + digits < -1) return std::copysign(0.0, value);
  if (exponent + digits >= 0) {
    std::snprintf(text.data(), text.size(), "%.*e", static_cast<int>(exponent + digits), value);
    return std::strtod(text.data(), nullptr);
  }
  const double unit = std::pow(10.0, static_cast<double>(-digits));
  return std::copysign(std::fabs(value) > unit / 2 ? unit : 0.0, value);
}

Value round(Runtime& runtime, const Value& self, CallArguments& arguments) {
  if (!self.is_number()) {
    return runtime.fail(fmt::format("filter 'round' needs a number, not a {}", type_name(self)));
  }
  const std::int64_t digits = integer_argument(runtime, argument(arguments, 0), 0);
  const std::string method = string_argument(runtime, argument(arguments, 1), "common");
  if (method == "common") {
    if (self.is_integral()) return round_integer(runtime, self.as_int(), digits);
    return Value::real(round_real(self.as_double(), digits));
  }
  if (method != "ceil" && method != "floor") {
    return runtime.fail("filter 'round' knows the methods common, ceil and floor");
  }
  const double scale = std::pow(10.0, static_cast<double>(digits));
  const double scaled = self.as_double() * scale;
  if (!std::isfinite(scaled)) return runtime.fail("this number cannot be rounded");
  // Python rounds to an integer first, which has no negative zero.
  const double rounded = (method == "ceil" ? std::ceil(scaled) : std::floor(scaled)) + 0.0;
  return Value::real(rounded / scale);
}

bool read_separators(Runtime& runtime, const Value& value, JsonStyle& style) {
  if (value.is_missing() || value.is_none()) return true;
  const auto length = length_of(value);
  if (!value.is_list() || length != 2 || !value.as_list().items[0].is_string() ||
      !value.as_list().items[1].is_string()) {
    runtime.fail("tojson needs two strings as separators");
    return false;
  }
  style.item_separator = value.as_list().items[0].as_string().text;
  style.key_separator = value.as_list().items[1].as_string().text;
  return true;
}

Value to_json(Runtime& runtime, const Value& self, CallArguments& arguments) {
  JsonStyle style;
  style.ensure_ascii = truthy(argument(arguments, 0));
  const Value& indent = argument(arguments, 1);
  if (indent.is_string()) {
    style.indent = indent.as_string().text;
  } else if (!indent.is_missing() && !indent.is_none()) {
    TextBuilder spaces(runtime);
    spaces.add_repeated(" ", integer_argument(runtime, indent, 0));
    style.indent = spaces.take();
  }
  // With line breaks Python drops the space after the comma.
  if (style.indent) style.item_separator.assign(1, ',');
  if (!read_separators(runtime, argument(arguments, 2), style)) return {};
  style.sort_keys = truthy(argument(arguments, 3));
  TextBuilder out(runtime);
  append_json(runtime, out, self, style);
  return out.finish();
}

Value attribute(Runtime& runtime, const Value& self, CallArguments& arguments) {
  const std::string name = string_argument(runtime, argument(arguments, 0), "");
  if (self.is_undefined()) return runtime.fail(undefined_message(self));
  // Only attributes: a dict's entries are not found this way.
  if (self.is_object()) return self.as_object().attribute(runtime, name);
  return bound_method(runtime, self, name);
}

constexpr NativeDefinition kFilters[] = {
    {"default", default_value, 0, {"default_value", "boolean"}},
    {"d", default_value, 0, {"default_value", "boolean"}},
    {"length", length},
    {"count", length},
    {"int", to_int, 0, {"default", "base"}},
    {"float", to_float, 0, {"default"}},
    {"abs", absolute},
    {"round", round, 0, {"precision", "method"}},
    {"tojson", to_json, 0, {"ensure_ascii", "indent", "separators", "sort_keys"}},
    {"attr", attribute, 1, {"name"}},
};

}  // namespace

std::span<const NativeDefinition> value_filters() {
  return kFilters;
}

}  // namespace motley::jinja
