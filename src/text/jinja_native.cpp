#include "text/jinja_native.h"

#include <fmt/format.h>

#include "text/jinja_builtins.h"
#include "text/jinja_ops.h"

namespace motley::jinja {
namespace {

std::size_t parameter_count(const NativeDefinition& definition) {
  std::size_t count = 0;
  while (count < definition.parameters.size() && !definition.parameters[count].empty()) ++count;
  return count;
}

bool bind(Runtime& runtime, std::string_view what, const NativeDefinition& definition,
          CallArguments& arguments) {
  const std::size_t count = parameter_count(definition);
  const auto refuse = [&](std::string_view why) {
    runtime.fail(fmt::format("{} '{}' {}", what, definition.name, why));
    return false;
  };
  if (arguments.positional.size() > count) {
    return refuse(fmt::format("takes at most {} arguments", count));
  }
  arguments.positional.resize(count, Value::missing());
  for (const auto& [name, value] : arguments.named) {
    std::size_t index = 0;
    while (index < count && (definition.parameters[index] != name || !definition.by_name)) ++index;
    if (index == count) return refuse(fmt::format("has no argument '{}'", name));
    if (!arguments.positional[index].is_missing()) {
      return refuse(fmt::format("is given argument '{}' twice", name));
    }
    arguments.positional[index] = value;
  }
  for (std::size_t i = 0; i < definition.required; ++i) {
    if (arguments.positional[i].is_missing()) {
      return refuse(fmt::format("needs argument '{}'", definition.parameters[i]));
    }
  }
  return true;
}

const NativeDefinition* find_filter(std::string_view name) {
  for (const auto table : {text_filters(), value_filters(), list_filters(), selection_filters()}) {
    if (const NativeDefinition* found = find_native(table, name)) return found;
  }
  return nullptr;
}

}  // namespace

const NativeDefinition* find_native(std::span<const NativeDefinition> table,
                                    std::string_view name) {
  for (const NativeDefinition& definition : table) {
    if (definition.name == name) return &definition;
  }
  return nullptr;
}

Value call_native(Runtime& runtime, std::string_view what, const NativeDefinition& definition,
                  const Value& self, CallArguments& arguments) {
  if (!runtime.step()) return {};
  if (!definition.free_form && !bind(runtime, what, definition, arguments)) return {};
  const Value result = definition.function(runtime, self, arguments);
  return runtime.failed() ? Value() : result;
}

std::int64_t integer_argument(Runtime& runtime, const Value& value, std::int64_t otherwise) {
  if (value.is_missing()) return otherwise;
  if (value.is_integral()) return value.as_int();
  runtime.fail(fmt::format("an argument must be an integer, not a {}", type_name(value)));
  return otherwise;
}

std::string string_argument(Runtime& runtime, const Value& value, std::string_view otherwise) {
  if (value.is_missing()) return std::string(otherwise);
  if (value.is_string()) return value.as_string().text;
  runtime.fail(fmt::format("an argument must be a string, not a {}", type_name(value)));
  return std::string(otherwise);
}

bool is_filter_name(std::string_view name) {
  return find_filter(name) != nullptr;
}

Value call_filter(Runtime& runtime, std::string_view name, const Value& value,
                  CallArguments& arguments) {
  const NativeDefinition* definition = find_filter(name);
  if (definition == nullptr) return runtime.fail(fmt::format("no filter named '{}'", name));
  return call_native(runtime, "filter", *definition, value, arguments);
}

}  // namespace motley::jinja
