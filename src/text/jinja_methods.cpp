// Methods of lists, dicts and numbers, and the binding of any method to its object.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <memory>

#include "text/jinja_builtins.h"
#include "text/jinja_native.h"
#include "text/jinja_ops.h"

namespace motley::jinja {
namespace {

class BoundMethod : public Object {
 public:
  BoundMethod(const NativeDefinition& definition, const Value& receiver)
      : definition_(definition), receiver_(receiver) {}

  std::string_view type_name() const override { return "method"; }
  bool is_callable() const override { return true; }

  Value call(Runtime& runtime, CallArguments& arguments) override {
    return call_native(runtime, "method", definition_, receiver_, arguments);
  }

 private:
  const NativeDefinition& definition_;
  const Value receiver_;
};

Value list_count(Runtime& runtime, const Value& self, CallArguments& arguments) {
  std::int64_t count = 0;
  for (const Value& item : self.as_list().items) {
    count += equals(runtime, item, argument(arguments, 0)) ? 1 : 0;
    if (runtime.failed()) return {};
  }
  return Value::integer(count);
}

Value list_index(Runtime& runtime, const Value& self, CallArguments& arguments) {
  const auto& items = self.as_list().items;
  const auto size = static_cast<std::int64_t>(items.size());
  const auto bound = [&](std::size_t position, std::int64_t otherwise) {
    const std::int64_t at = integer_argument(runtime, argument(arguments, position), otherwise);
    return std::clamp<std::int64_t>(at < 0 ? at + size : at, 0, size);
  };
  const std::int64_t end = bound(2, size);
  for (std::int64_t i = bound(1, 0); i < end; ++i) {
    if (equals(runtime, items[static_cast<std::size_t>(i)], argument(arguments, 0))) {
      return Value::integer(i);
    }
  }
  return runtime.fail("index() finds no such item in the list");
}

Value list_copy(Runtime& runtime, const Value& self, CallArguments&) {
  return runtime.make_list(self.as_list().items);
}

Value dict_get(Runtime& runtime, const Value& self, CallArguments& arguments) {
  const Value& key = argument(arguments, 0);
  if (!is_hashable(key)) {
    return runtime.fail(fmt::format("a {} cannot be a dict key", type_name(key)));
  }
  const Value* entry = find_entry(runtime, self.as_dict(), key);
  if (entry != nullptr) return *entry;
  return argument(arguments, 1).is_missing() ? Value::none() : argument(arguments, 1);
}

Value dict_view(Runtime& runtime, const Value& self, ListFlavour flavour) {
  std::vector<Value> items;
  for (const auto& [key, value] : self.as_dict().entries) {
    if (!runtime.step()) return {};
    if (flavour == ListFlavour::kDictItems) {
      items.push_back(runtime.make_list({key, value}, ListFlavour::kTuple));
    } else {
      items.push_back(flavour == ListFlavour::kDictKeys ? key : value);
    }
  }
  return runtime.make_list(std::move(items), flavour);
}

Value dict_items(Runtime& runtime, const Value& self, CallArguments&) {
  return dict_view(runtime, self, ListFlavour::kDictItems);
}

Value dict_keys(Runtime& runtime, const Value& self, CallArguments&) {
  return dict_view(runtime, self, ListFlavour::kDictKeys);
}

Value dict_values(Runtime& runtime, const Value& self, CallArguments&) {
  return dict_view(runtime, self, ListFlavour::kDictValues);
}

Value dict_copy(Runtime& runtime, const Value& self, CallArguments&) {
  return runtime.make_dict(self.as_dict().entries);
}

Value is_integer(Runtime&, const Value& self, CallArguments&) {
  return Value::boolean(std::isfinite(self.as_double()) &&
                        std::floor(self.as_double()) == self.as_double());
}

Value bit_length(Runtime&, const Value& self, CallArguments&) {
  const auto bits = static_cast<std::uint64_t>(self.as_int());
  std::uint64_t magnitude = self.as_int() < 0 ? 0 - bits : bits;
  std::int64_t length = 0;
  for (; magnitude != 0; magnitude >>= 1) ++length;
  return Value::integer(length);
}

constexpr NativeDefinition kSequenceMethods[] = {
    {"count", list_count, 1, {"value"}, false},
    {"index", list_index, 1, {"value", "start", "stop"}, false},
};

constexpr NativeDefinition kListMethods[] = {
    {"copy", list_copy},
};

constexpr NativeDefinition kDictMethods[] = {
    {"get", dict_get, 1, {"key", "default"}, false},
    {"items", dict_items},
    {"keys", dict_keys},
    {"values", dict_values},
    {"copy", dict_copy},
};

constexpr NativeDefinition kFloatMethods[] = {
    {"is_integer", is_integer},
};

constexpr NativeDefinition kIntMethods[] = {
    {"bit_length", bit_length},
};

const NativeDefinition* find_list_method(const ListData& list, std::string_view name) {
  const bool sequence = list.flavour == ListFlavour::kList || list.flavour == ListFlavour::kTuple ||
                        list.flavour == ListFlavour::kGroup || list.flavour == ListFlavour::kRange;
  const NativeDefinition* found = sequence ? find_native(kSequenceMethods, name) : nullptr;
  if (found == nullptr && list.flavour == ListFlavour::kList) {
    found = find_native(kListMethods, name);
  }
  return found;
}

const NativeDefinition* find_string_method(std::string_view name) {
  for (const auto table : {string_methods(), string_search_methods(), string_class_methods()}) {
    if (const NativeDefinition* found = find_native(table, name)) return found;
  }
  return nullptr;
}

}  // namespace

Value bound_method(Runtime& runtime, const Value& receiver, std::string_view name) {
  const NativeDefinition* found = nullptr;
  switch (receiver.kind()) {
    case ValueKind::kString:
      found = find_string_method(name);
      break;
    case ValueKind::kList:
      found = find_list_method(receiver.as_list(), name);
      break;
    case ValueKind::kDict:
      found = find_native(kDictMethods, name);
      break;
    case ValueKind::kFloat:
      found = find_native(kFloatMethods, name);
      break;
    case ValueKind::kInt:
    case ValueKind::kBool:
      found = find_native(kIntMethods, name);
      break;
    default:
      break;
  }
  if (found == nullptr) return {};
  return runtime.adopt(std::make_unique<BoundMethod>(*found, receiver));
}

}  // namespace motley::jinja
