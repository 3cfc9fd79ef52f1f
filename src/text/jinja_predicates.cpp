// The tests of `is`.
#include <fmt/format.h>

#include <array>

#include "text/jinja_builtins.h"
#include "text/jinja_native.h"
#include "text/jinja_ops.h"
#include "text/jinja_print.h"
#include "text/jinja_unicode.h"

namespace motley::jinja {
namespace {

using Test = bool (*)(Runtime& runtime, const Value& value, const CallArguments& arguments);

struct TestDefinition {
  std::string_view name;
  std::size_t operands;
  Test test;
};

bool is_sequence(const Value& value) {
  if (value.is_string() || value.is_dict() || value.is_undefined()) return true;
  if (!value.is_list()) return false;
  switch (value.as_list().flavour) {
    case ListFlavour::kList:
    case ListFlavour::kTuple:
    case ListFlavour::kGroup:
    case ListFlavour::kRange:
      return true;
    default:
      return false;
  }
}

bool is_same(Runtime& runtime, const Value& left, const Value& right) {
  if (left.kind() != right.kind()) return false;
  if (left.is_list()) return &left.as_list() == &right.as_list();
  if (left.is_dict()) return &left.as_dict() == &right.as_dict();
  return equals(runtime, left, right);
}

Value remainder(Runtime& runtime, const Value& value, const Value& divisor) {
  return binary(runtime, Operator::kModulo, value, divisor);
}

// `value in names`, which Python refuses for what cannot be a key.
bool is_name(Runtime& runtime, const Value& value, bool (*known)(std::string_view)) {
  if (!is_hashable(value)) {
    runtime.fail(fmt::format("a {} cannot be a name", type_name(value)));
    return false;
  }
  return value.is_string() && known(value.text());
}

bool remainder_is(Runtime& runtime, const Value& value, const Value& divisor, std::int64_t wanted) {
  return equals(runtime, remainder(runtime, value, divisor), Value::integer(wanted));
}

// str.islower or str.isupper of str(value).
bool has_case(Runtime& runtime, const Value& value, bool upper) {
  const std::string text = to_str(runtime, value);
  if (!runtime.step_bytes(text.size() * 4)) return false;
  bool found = false;
  for (const char32_t c : decode_utf8(text)) {
    if (upper ? (is_lower(c) || is_title(c)) : (is_upper(c) || is_title(c))) return false;
    found |= upper ? is_upper(c) : is_lower(c);
  }
  return found;
}

template <Operator op>
bool compares(Runtime& runtime, const Value& value, const CallArguments& arguments) {
  return compare(runtime, op, value, arguments.positional[0]);
}

template <ValueKind kind>
bool has_kind(Runtime&, const Value& value, const CallArguments&) {
  return value.is(kind);
}

template <bool wanted>
bool is_bool(Runtime&, const Value& value, const CallArguments&) {
  return value.is(ValueKind::kBool) && value.as_bool() == wanted;
}

constexpr std::array<TestDefinition, 39> kTests = {{
    {"defined", 0,
     [](Runtime&, const Value& v, const CallArguments&) { return !v.is_undefined(); }},
    {"undefined", 0, has_kind<ValueKind::kUndefined>},
    {"none", 0, has_kind<ValueKind::kNone>},
    {"string", 0, has_kind<ValueKind::kString>},
    {"mapping", 0, has_kind<ValueKind::kDict>},
    {"float", 0, has_kind<ValueKind::kFloat>},
    {"integer", 0, has_kind<ValueKind::kInt>},
    {"boolean", 0, has_kind<ValueKind::kBool>},
    {"true", 0, is_bool<true>},
    {"false", 0, is_bool<false>},
    {"number", 0, [](Runtime&, const Value& v, const CallArguments&) { return v.is_number(); }},
    {"sequence", 0, [](Runtime&, const Value& v, const CallArguments&) { return is_sequence(v); }},
    {"iterable", 0, [](Runtime&, const Value& v, const CallArguments&) { return is_iterable(v); }},
    {"callable", 0,
     [](Runtime&, const Value& v, const CallArguments&) {
       // An undefined value has a call operator in Python, which then refuses.
       return v.is_undefined() || (v.is_object() && v.as_object().is_callable());
     }},
    {"escaped", 0,
     [](Runtime&, const Value& v, const CallArguments&) {
       return v.is_string() && v.as_string().safe;
     }},
    {"lower", 0,
     [](Runtime& r, const Value& v, const CallArguments&) { return has_case(r, v, false); }},
    {"upper", 0,
     [](Runtime& r, const Value& v, const CallArguments&) { return has_case(r, v, true); }},
    {"odd", 0,
     [](Runtime& r, const Value& v, const CallArguments&) {
       return remainder_is(r, v, Value::integer(2), 1);
     }},
    {"even", 0,
     [](Runtime& r, const Value& v, const CallArguments&) {
       return remainder_is(r, v, Value::integer(2), 0);
     }},
    {"divisibleby", 1,
     [](Runtime& r, const Value& v, const CallArguments& a) {
       return remainder_is(r, v, a.positional[0], 0);
     }},
    {"sameas", 1,
     [](Runtime& r, const Value& v, const CallArguments& a) {
       return is_same(r, v, a.positional[0]);
     }},
    {"filter", 0,
     [](Runtime& r, const Value& v, const CallArguments&) {
       return is_name(r, v, is_filter_name);
     }},
    {"test", 0,
     [](Runtime& r, const Value& v, const CallArguments&) { return is_name(r, v, is_test_name); }},
    {"in", 1,
     [](Runtime& r, const Value& v, const CallArguments& a) {
       return contains(r, a.positional[0], v);
     }},
    {"==", 1, compares<Operator::kEqual>},
    {"eq", 1, compares<Operator::kEqual>},
    {"equalto", 1, compares<Operator::kEqual>},
    {"!=", 1, compares<Operator::kNotEqual>},
    {"ne", 1, compares<Operator::kNotEqual>},
    {"<", 1, compares<Operator::kLess>},
    {"lt", 1, compares<Operator::kLess>},
    {"lessthan", 1, compares<Operator::kLess>},
    {"<=", 1, compares<Operator::kLessEqual>},
    {"le", 1, compares<Operator::kLessEqual>},
    {">", 1, compares<Operator::kGreater>},
    {"gt", 1, compares<Operator::kGreater>},
    {"greaterthan", 1, compares<Operator::kGreater>},
    {">=", 1, compares<Operator::kGreaterEqual>},
    {"ge", 1, compares<Operator::kGreaterEqual>},
}};

const TestDefinition* find_test(std::string_view name) {
  for (const TestDefinition& definition : kTests) {
    if (definition.name == name) return &definition;
  }
  return nullptr;
}

}  // namespace

bool is_test_name(std::string_view name) {
  return find_test(name) != nullptr;
}

bool call_test(Runtime& runtime, std::string_view name, const Value& value,
               CallArguments& arguments) {
  if (!runtime.step()) return false;
  const TestDefinition* definition = find_test(name);
  if (definition == nullptr) {
    runtime.fail(fmt::format("no test named '{}'", name));
    return false;
  }
  if (arguments.positional.size() != definition->operands || !arguments.named.empty()) {
    runtime.fail(fmt::format("test '{}' takes {} operands", name, definition->operands));
    return false;
  }
  return definition->test(runtime, value, arguments);
}

}  // namespace motley::jinja
