// map, select and reject. Their results are iterators, as in Jinja2: read once, without a length.
#include <fmt/format.h>

#include "text/jinja_attribute_path.h"
#include "text/jinja_builtins.h"
#include "text/jinja_native.h"
#include "text/jinja_ops.h"

namespace motley::jinja {
namespace {

// Anything that counts as false has no items here, even none and 0.
std::vector<Value> items_of(Runtime& runtime, const Value& value) {
  return truthy(value) ? iterate(runtime, value) : std::vector<Value>();
}

Value map_attribute(Runtime& runtime, const Value& self, const CallArguments& arguments) {
  Value attribute = Value::missing();
  Value otherwise = Value::missing();
  for (const auto& [name, value] : arguments.named) {
    if (name == "attribute") {
      attribute = value;
    } else if (name == "default") {
      otherwise = value;
    } else {
      return runtime.fail(fmt::format("filter 'map' has no argument '{}'", name));
    }
  }
  const AttributePath path(runtime, attribute);
  std::vector<Value> mapped;
  for (const Value& item : items_of(runtime, self)) mapped.push_back(path.of(item, otherwise));
  return runtime.make_list(std::move(mapped), ListFlavour::kIterator);
}

Value map(Runtime& runtime, const Value& self, CallArguments& arguments) {
  if (arguments.positional.empty()) {
    for (const auto& entry : arguments.named) {
      if (entry.first == "attribute") return map_attribute(runtime, self, arguments);
    }
    return runtime.fail("filter 'map' needs a filter name or an attribute");
  }
  const std::string name = string_argument(runtime, arguments.positional[0], "");
  std::vector<Value> mapped;
  for (const Value& item : items_of(runtime, self)) {
    CallArguments call;
    call.positional.assign(arguments.positional.begin() + 1, arguments.positional.end());
    call.named = arguments.named;
    mapped.push_back(call_filter(runtime, name, item, call));
    if (runtime.failed()) return {};
  }
  return runtime.make_list(std::move(mapped), ListFlavour::kIterator);
}

Value filter_items(Runtime& runtime, const Value& self, const CallArguments& arguments,
                   bool by_attribute, bool wanted) {
  const std::size_t skipped = by_attribute ? 1 : 0;
  if (arguments.positional.size() < skipped) {
    return runtime.fail("a selection by attribute needs the attribute's name");
  }
  const AttributePath path(runtime, by_attribute ? arguments.positional[0] : Value::missing());
  const bool has_test = arguments.positional.size() > skipped;
  const std::string test =
      has_test ? string_argument(runtime, arguments.positional[skipped], "") : "";
  std::vector<Value> kept;
  for (const Value& item : items_of(runtime, self)) {
    const Value tested = path.of(item);
    bool passes = truthy(tested);
    if (has_test) {
      CallArguments call;
      call.positional.assign(
          arguments.positional.begin() + static_cast<std::ptrdiff_t>(skipped) + 1,
          arguments.positional.end());
      call.named = arguments.named;
      passes = call_test(runtime, test, tested, call);
    }
    if (runtime.failed()) return {};
    if (passes == wanted) kept.push_back(item);
  }
  return runtime.make_list(std::move(kept), ListFlavour::kIterator);
}

Value select(Runtime& runtime, const Value& self, CallArguments& arguments) {
  return filter_items(runtime, self, arguments, false, true);
}

Value reject(Runtime& runtime, const Value& self, CallArguments& arguments) {
  return filter_items(runtime, self, arguments, false, false);
}

Value select_attribute(Runtime& runtime, const Value& self, CallArguments& arguments) {
  return filter_items(runtime, self, arguments, true, true);
}

Value reject_attribute(Runtime& runtime, const Value& self, CallArguments& arguments) {
  return filter_items(runtime, self, arguments, true, false);
}

constexpr NativeDefinition kFilters[] = {
    {"map", map, 0, {}, true, true},
    {"select", select, 0, {}, true, true},
    {"reject", reject, 0, {}, true, true},
    {"selectattr", select_attribute, 0, {}, true, true},
    {"rejectattr", reject_attribute, 0, {}, true, true},
};

}  // namespace

std::span<const NativeDefinition> selection_filters() {
  return kFilters;
}

}  // namespace motley::jinja
