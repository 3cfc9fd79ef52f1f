// Built-in filters, tests, methods and functions: one table row each, with the parameter names that
// Python gives them, so that arguments by position and by name are bound in one place.
//
// Thread rule: tables are constant; the Runtime belongs to the calling rendering.
#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>

#include "text/jinja_runtime.h"
#include "text/jinja_value.h"

namespace motley::jinja {

// `self` is the filtered value or the method's object; undefined for global functions. After
// binding, `arguments.positional` has one entry per parameter, `missing` where none was given.
using NativeFunction = Value (*)(Runtime& runtime, const Value& self, CallArguments& arguments);

struct NativeDefinition {
  std::string_view name;
  NativeFunction function = nullptr;
  std::uint8_t required = 0;
  std::array<std::string_view, 4> parameters = {};
  bool by_name = true;     // false: Python takes these by position only
  bool free_form = false;  // takes any arguments, unbound
};

const NativeDefinition* find_native(std::span<const NativeDefinition> table, std::string_view name);

// Binds the arguments and calls. `what` names the kind of thing for errors ("filter").
Value call_native(Runtime& runtime, std::string_view what, const NativeDefinition& definition,
                  const Value& self, CallArguments& arguments);

// One bound argument as a type; `otherwise` when missing. Errors are sticky.
std::int64_t integer_argument(Runtime& runtime, const Value& value, std::int64_t otherwise);
std::string string_argument(Runtime& runtime, const Value& value, std::string_view otherwise);
inline const Value& argument(const CallArguments& arguments, std::size_t index) {
  return arguments.positional[index];
}

// Each table lives with its functions.
std::span<const NativeDefinition> text_filters();
std::span<const NativeDefinition> value_filters();
std::span<const NativeDefinition> list_filters();
std::span<const NativeDefinition> selection_filters();
std::span<const NativeDefinition> string_methods();
std::span<const NativeDefinition> string_search_methods();
std::span<const NativeDefinition> string_class_methods();

}  // namespace motley::jinja
