// Truth, equality, order and membership, as Python has them.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "text/jinja_ops.h"

namespace motley::jinja {
namespace {

bool is_view(ListFlavour flavour) {
  return flavour == ListFlavour::kDictKeys || flavour == ListFlavour::kDictItems;
}

// Sequences compare only with their own kind.
int sequence_class(const ListData& list) {
  switch (list.flavour) {
    case ListFlavour::kList:
      return 0;
    case ListFlavour::kTuple:
    case ListFlavour::kGroup:
      return 1;
    case ListFlavour::kRange:
      return 2;
    default:
      return 3;
  }
}

bool list_equals(Runtime& runtime, const ListData& left, const ListData& right) {
  if (&left == &right) return true;
  if (is_view(left.flavour) && is_view(right.flavour)) {
    if (left.items.size() != right.items.size()) return false;
    return std::all_of(left.items.begin(), left.items.end(), [&](const Value& item) {
      return std::any_of(right.items.begin(), right.items.end(),
                         [&](const Value& other) { return equals(runtime, item, other); });
    });
  }
  const int kind = sequence_class(left);
  if (kind == 3 || kind != sequence_class(right)) return false;
  if (left.items.size() != right.items.size()) return false;
  for (std::size_t i = 0; i < left.items.size(); ++i) {
    if (!equals(runtime, left.items[i], right.items[i])) return false;
  }
  return true;
}

bool dict_equals(Runtime& runtime, const DictData& left, const DictData& right) {
  if (left.entries.size() != right.entries.size()) return false;
  for (const auto& [key, value] : left.entries) {
    const Value* other = find_entry(runtime, right, key);
    if (other == nullptr || !equals(runtime, value, *other)) return false;
  }
  return true;
}

// -1, 0, 1, or 2 when one is not a number. Exact: no integer is rounded to a double.
int order_numbers(const Value& left, const Value& right) {
  if (left.is_integral() && right.is_integral()) {
    return left.as_int() < right.as_int() ? -1 : (left.as_int() > right.as_int() ? 1 : 0);
  }
  const auto a = static_cast<long double>(
      left.is_integral() ? static_cast<long double>(left.as_int()) : left.as_double());
  const auto b = static_cast<long double>(
      right.is_integral() ? static_cast<long double>(right.as_int()) : right.as_double());
  if (std::isnan(a) || std::isnan(b)) return 2;
  return a < b ? -1 : (a > b ? 1 : 0);
}

bool is_ordered_sequence(const Value& value) {
  return value.is_list() && sequence_class(value.as_list()) < 2;
}

enum class Order { kLess, kEqual, kGreater, kUnordered };

Order order_of(Runtime& runtime, const Value& left, const Value& right) {
  if (left.is_number() && right.is_number()) {
    const int order = order_numbers(left, right);
    if (order == 2) return Order::kUnordered;
    return order < 0 ? Order::kLess : (order > 0 ? Order::kGreater : Order::kEqual);
  }
  if (left.is_string() && right.is_string()) {
    if (!runtime.step_bytes(std::min(left.text().size(), right.text().size()))) {
      return Order::kUnordered;
    }
    const int order = left.text().compare(right.text());
    return order < 0 ? Order::kLess : (order > 0 ? Order::kGreater : Order::kEqual);
  }
  if (is_ordered_sequence(left) && is_ordered_sequence(right) &&
      sequence_class(left.as_list()) == sequence_class(right.as_list())) {
    const auto& a = left.as_list().items;
    const auto& b = right.as_list().items;
    for (std::size_t i = 0; i < a.size() && i < b.size(); ++i) {
      if (!equals(runtime, a[i], b[i])) return order_of(runtime, a[i], b[i]);
    }
    return a.size() < b.size() ? Order::kLess
                               : (a.size() > b.size() ? Order::kGreater : Order::kEqual);
  }
  if (left.is_undefined() || right.is_undefined()) {
    runtime.fail(undefined_message(left.is_undefined() ? left : right));
  } else {
    runtime.fail(fmt::format("cannot compare a {} with a {}", type_name(left), type_name(right)));
  }
  return Order::kUnordered;
}

}  // namespace

bool truthy(const Value& value) {
  switch (value.kind()) {
    case ValueKind::kUndefined:
    case ValueKind::kMissing:
    case ValueKind::kNone:
      return false;
    case ValueKind::kBool:
    case ValueKind::kInt:
      return value.as_int() != 0;
    case ValueKind::kFloat:
      return value.as_double() != 0.0;
    case ValueKind::kString:
      return !value.text().empty();
    case ValueKind::kList:
      return value.as_list().flavour == ListFlavour::kIterator || !value.as_list().items.empty();
    case ValueKind::kDict:
      return !value.as_dict().entries.empty();
    case ValueKind::kObject:
      return true;
  }
  return false;
}

bool is_hashable(const Value& value) {
  if (value.is_dict()) return false;
  if (!value.is_list()) return true;
  const ListData& list = value.as_list();
  switch (list.flavour) {
    case ListFlavour::kTuple:
    case ListFlavour::kGroup:
      return std::all_of(list.items.begin(), list.items.end(), is_hashable);
    case ListFlavour::kRange:
    case ListFlavour::kIterator:
    case ListFlavour::kDictValues:
      return true;
    default:
      return false;
  }
}

bool equals(Runtime& runtime, const Value& left, const Value& right) {
  if (!runtime.step()) return false;
  if (left.is_number() && right.is_number()) return order_numbers(left, right) == 0;
  if (left.kind() != right.kind()) return false;
  switch (left.kind()) {
    case ValueKind::kString:
      return left.text().size() == right.text().size() && runtime.step_bytes(left.text().size()) &&
             left.text() == right.text();
    case ValueKind::kList:
      return list_equals(runtime, left.as_list(), right.as_list());
    case ValueKind::kDict:
      return dict_equals(runtime, left.as_dict(), right.as_dict());
    case ValueKind::kObject:
      return &left.as_object() == &right.as_object();
    default:
      return true;  // none and undefined
  }
}

bool less(Runtime& runtime, const Value& left, const Value& right) {
  return order_of(runtime, left, right) == Order::kLess;
}

bool compare(Runtime& runtime, Operator op, const Value& left, const Value& right) {
  switch (op) {
    case Operator::kEqual:
      return equals(runtime, left, right);
    case Operator::kNotEqual:
      return !equals(runtime, left, right);
    case Operator::kIn:
      return contains(runtime, right, left);
    case Operator::kNotIn:
      return !contains(runtime, right, left);
    default:
      break;
  }
  const Order order = order_of(runtime, left, right);
  switch (op) {
    case Operator::kLess:
      return order == Order::kLess;
    case Operator::kLessEqual:
      return order == Order::kLess || order == Order::kEqual;
    case Operator::kGreater:
      return order == Order::kGreater;
    default:
      return order == Order::kGreater || order == Order::kEqual;
  }
}

const Value* find_entry(Runtime& runtime, const DictData& dict, const Value& key) {
  if (key.is_string()) {
    if (dict.index.empty() && !runtime.step(static_cast<std::int64_t>(dict.entries.size()) / 4 + 1))
      return nullptr;
    return dict.find(key.text());
  }
  for (const auto& [name, value] : dict.entries) {
    if (equals(runtime, name, key)) return &value;
  }
  return nullptr;
}

bool contains(Runtime& runtime, const Value& container, const Value& item) {
  if (container.is_string()) {
    if (!item.is_string()) {
      runtime.fail(
          fmt::format("'in' needs a string on the left of a string, not a {}", type_name(item)));
      return false;
    }
    return runtime.step_bytes(container.text().size()) &&
           container.text().find(item.text()) != std::string_view::npos;
  }
  if (container.is_dict()) {
    if (!is_hashable(item)) {
      runtime.fail(fmt::format("a {} cannot be a dict key", type_name(item)));
      return false;
    }
    return find_entry(runtime, container.as_dict(), item) != nullptr;
  }
  if (container.is_list() && container.as_list().flavour == ListFlavour::kDictKeys &&
      !is_hashable(item)) {
    runtime.fail(fmt::format("a {} cannot be a dict key", type_name(item)));
    return false;
  }
  if (container.is_list() && container.as_list().flavour != ListFlavour::kIterator) {
    for (const Value& candidate : container.as_list().items) {
      if (equals(runtime, candidate, item)) return true;
    }
    return false;
  }
  if (container.is_list()) {
    ListData& list = container.as_list();
    while (list.cursor < list.items.size() && !runtime.failed()) {
      if (equals(runtime, list.items[list.cursor++], item)) return true;
    }
    return false;
  }
  if (!container.is_undefined()) {
    runtime.fail(
        fmt::format("'in' needs a container on the right, not a {}", type_name(container)));
  }
  return false;
}

}  // namespace motley::jinja
