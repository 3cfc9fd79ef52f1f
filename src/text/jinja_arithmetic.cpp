// Arithmetic of Python on 64-bit integers and doubles, and `+`, `*` and `%` of strings and lists.
#include <fmt/format.h>

#include <cmath>
#include <limits>

#include "text/jinja_format.h"
#include "text/jinja_ops.h"

namespace motley::jinja {
namespace {

std::string_view sign_of(Operator op) {
  switch (op) {
    case Operator::kAdd:
      return "+";
    case Operator::kSubtract:
      return "-";
    case Operator::kMultiply:
      return "*";
    case Operator::kDivide:
      return "/";
    case Operator::kFloorDivide:
      return "//";
    case Operator::kModulo:
      return "%";
    default:
      return "**";
  }
}

Value overflow(Runtime& runtime) {
  return runtime.fail("an integer does not fit 64 bits");
}

Value integer_power(Runtime& runtime, std::int64_t base, std::int64_t exponent) {
  if (exponent < 0) {
    if (base == 0) return runtime.fail("0 cannot be raised to a negative power");
    return Value::real(std::pow(static_cast<double>(base), static_cast<double>(exponent)));
  }
  std::int64_t result = 1;
  while (exponent > 0) {
    if ((exponent & 1) != 0 && __builtin_mul_overflow(result, base, &result)) {
      return overflow(runtime);
    }
    exponent >>= 1;
    if (exponent > 0 && __builtin_mul_overflow(base, base, &base)) return overflow(runtime);
  }
  return Value::integer(result);
}

Value integer_division(Runtime& runtime, Operator op, std::int64_t a, std::int64_t b) {
  if (b == 0) return runtime.fail("division by zero");
  if (a == std::numeric_limits<std::int64_t>::min() && b == -1) {
    return op == Operator::kModulo ? Value::integer(0) : overflow(runtime);
  }
  std::int64_t quotient = a / b;
  std::int64_t remainder = a % b;
  // Python rounds towards minus infinity, so the remainder has the divisor's sign.
  if (remainder != 0 && (remainder < 0) != (b < 0)) {
    --quotient;
    remainder += b;
  }
  return Value::integer(op == Operator::kModulo ? remainder : quotient);
}

Value integer_arithmetic(Runtime& runtime, Operator op, std::int64_t a, std::int64_t b) {
  std::int64_t result = 0;
  bool overflows = false;
  switch (op) {
    case Operator::kAdd:
      overflows = __builtin_add_overflow(a, b, &result);
      break;
    case Operator::kSubtract:
      overflows = __builtin_sub_overflow(a, b, &result);
      break;
    case Operator::kMultiply:
      overflows = __builtin_mul_overflow(a, b, &result);
      break;
    case Operator::kDivide:
      if (b == 0) return runtime.fail("division by zero");
      return Value::real(static_cast<double>(a) / static_cast<double>(b));
    case Operator::kPower:
      return integer_power(runtime, a, b);
    default:
      return integer_division(runtime, op, a, b);
  }
  return overflows ? overflow(runtime) : Value::integer(result);
}

double python_modulo(double a, double b) {
  double remainder = std::fmod(a, b);
  if (remainder != 0.0) {
    if ((b < 0) != (remainder < 0)) remainder += b;
  } else {
    remainder = std::copysign(0.0, b);
  }
  return remainder;
}

double python_floor_divide(double a, double b) {
  const double remainder = std::fmod(a, b);
  double quotient = (a - remainder) / b;
  if (remainder != 0.0 && (b < 0) != (remainder < 0)) quotient -= 1.0;
  if (quotient == 0.0) return std::copysign(0.0, a / b);
  const double floored = std::floor(quotient);
  return quotient - floored > 0.5 ? floored + 1.0 : floored;
}

Value real_power(Runtime& runtime, double a, double b) {
  if (a == 0.0 && b < 0.0) return runtime.fail("0 cannot be raised to a negative power");
  if (a < 0.0 && std::isfinite(a) && std::isfinite(b) && b != std::floor(b)) {
    return runtime.fail("a negative number cannot be raised to a fractional power");
  }
  const double result = std::pow(a, b);
  if (std::isinf(result) && std::isfinite(a) && std::isfinite(b)) {
    return runtime.fail("the result of ** is too large");
  }
  return Value::real(result);
}

Value real_arithmetic(Runtime& runtime, Operator op, double a, double b) {
  switch (op) {
    case Operator::kAdd:
      return Value::real(a + b);
    case Operator::kSubtract:
      return Value::real(a - b);
    case Operator::kMultiply:
      return Value::real(a * b);
    case Operator::kPower:
      return real_power(runtime, a, b);
    default:
      break;
  }
  if (b == 0.0) return runtime.fail("division by zero");
  if (op == Operator::kDivide) return Value::real(a / b);
  return Value::real(op == Operator::kModulo ? python_modulo(a, b) : python_floor_divide(a, b));
}

Value add_strings(Runtime& runtime, const StringData& left, const StringData& right) {
  TextBuilder out(runtime);
  const bool safe = left.safe || right.safe;
  out.add(safe && !left.safe ? escape_html(left.text) : left.text);
  out.add(safe && !right.safe ? escape_html(right.text) : right.text);
  return out.finish(safe);
}

bool is_plain_sequence(const Value& value) {
  return value.is_list() && (value.as_list().flavour == ListFlavour::kList ||
                             value.as_list().flavour == ListFlavour::kTuple ||
                             value.as_list().flavour == ListFlavour::kGroup);
}

ListFlavour plain_flavour(const Value& value) {
  return value.as_list().flavour == ListFlavour::kList ? ListFlavour::kList : ListFlavour::kTuple;
}

Value add_lists(Runtime& runtime, const Value& left, const Value& right) {
  std::vector<Value> items = left.as_list().items;
  const auto& more = right.as_list().items;
  items.insert(items.end(), more.begin(), more.end());
  return runtime.make_list(std::move(items), plain_flavour(left));
}

Value repeat(Runtime& runtime, const Value& sequence, std::int64_t count) {
  if (sequence.is_string()) {
    TextBuilder out(runtime);
    out.add_repeated(sequence.text(), count);
    return out.finish(sequence.as_string().safe);
  }
  const auto& once = sequence.as_list().items;
  std::vector<Value> items;
  if (count > 0 && !once.empty()) {
    const auto times = static_cast<std::size_t>(count);
    // Checked before the storage exists; make_list charges it once more.
    if (times > runtime.limits().max_value_bytes / once.size() ||
        !runtime.reserve_items(once.size() * times)) {
      return runtime.fail_limit("a repeated list is too long");
    }
    for (std::size_t i = 0; i < times; ++i) items.insert(items.end(), once.begin(), once.end());
  }
  return runtime.make_list(std::move(items), plain_flavour(sequence));
}

}  // namespace

Value binary(Runtime& runtime, Operator op, const Value& left, const Value& right) {
  if (left.is_number() && right.is_number()) {
    if (left.is_integral() && right.is_integral()) {
      return integer_arithmetic(runtime, op, left.as_int(), right.as_int());
    }
    return real_arithmetic(runtime, op, left.as_double(), right.as_double());
  }
  if (left.is_undefined() || right.is_undefined()) {
    // Python formats an undefined argument as nothing, all other operators refuse it.
    if (!(op == Operator::kModulo && left.is_string())) {
      return runtime.fail(undefined_message(left.is_undefined() ? left : right));
    }
  }
  if (op == Operator::kAdd) {
    if (left.is_string() && right.is_string()) {
      return add_strings(runtime, left.as_string(), right.as_string());
    }
    if (is_plain_sequence(left) && is_plain_sequence(right) &&
        plain_flavour(left) == plain_flavour(right)) {
      return add_lists(runtime, left, right);
    }
  }
  if (op == Operator::kMultiply) {
    const auto repeatable = [](const Value& v) { return v.is_string() || is_plain_sequence(v); };
    if (repeatable(left) && right.is_integral()) return repeat(runtime, left, right.as_int());
    if (repeatable(right) && left.is_integral()) return repeat(runtime, right, left.as_int());
  }
  if (op == Operator::kModulo && left.is_string()) return percent_format(runtime, left, right);
  return runtime.fail(fmt::format("'{}' does not work for a {} and a {}", sign_of(op),
                                  type_name(left), type_name(right)));
}

Value unary(Runtime& runtime, Operator op, const Value& operand) {
  if (op == Operator::kNot) return Value::boolean(!truthy(operand));
  if (operand.is_undefined()) return runtime.fail(undefined_message(operand));
  if (!operand.is_number()) {
    return runtime.fail(fmt::format("'{}' does not work for a {}",
                                    op == Operator::kNegate ? "-" : "+", type_name(operand)));
  }
  const bool negate = op == Operator::kNegate;
  if (!operand.is_integral()) {
    return Value::real(negate ? -operand.as_double() : operand.as_double());
  }
  if (negate && operand.as_int() == std::numeric_limits<std::int64_t>::min()) {
    return overflow(runtime);
  }
  return Value::integer(negate ? -operand.as_int() : operand.as_int());
}

}  // namespace motley::jinja
