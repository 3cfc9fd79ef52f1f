#include "text/jinja_macro.h"

#include <fmt/format.h>

namespace motley::jinja {

Value MacroObject::attribute(Runtime& runtime, std::string_view name) {
  if (name == "name") return runtime.make_string(*declaration_.name);
  return {};
}

std::string MacroObject::describe(Runtime& /*runtime*/) const {
  return fmt::format("<Macro '{}'>", *declaration_.name);
}

bool MacroObject::bind(Runtime& runtime, CallArguments& arguments, Scope& scope) {
  const auto& parameters = declaration_.parameters;
  const std::size_t by_position = std::min(arguments.positional.size(), parameters.size());
  std::vector<bool> used(arguments.named.size(), false);
  std::vector<Value> values(parameters.size(), Value::missing());
  for (std::size_t i = 0; i < parameters.size(); ++i) {
    if (i < by_position) {
      values[i] = arguments.positional[i];
      continue;
    }
    for (std::size_t n = 0; n < arguments.named.size(); ++n) {
      if (arguments.named[n].first != *parameters[i]) continue;
      values[i] = arguments.named[n].second;
      used[n] = true;
    }
  }
  if (!bind_rest(runtime, arguments, used, scope)) return false;
  const std::size_t first_default = parameters.size() - declaration_.defaults.size();
  for (std::size_t i = 0; i < parameters.size(); ++i) {
    if (values[i].is_missing() && i >= first_default) {
      values[i] = interpreter_.evaluate(*declaration_.defaults[i - first_default], scope);
    } else if (values[i].is_missing()) {
      values[i] =
          runtime.make_undefined(fmt::format("parameter '{}' was not given", *parameters[i]));
    }
    scope.set(parameters[i], values[i]);
  }
  return !runtime.failed();
}

bool MacroObject::bind_rest(Runtime& runtime, const CallArguments& arguments,
                            const std::vector<bool>& used, Scope& scope) {
  const std::string& name = *declaration_.name;
  Value caller = runtime.make_undefined("no caller is defined");
  std::vector<std::pair<Value, Value>> rest;
  for (std::size_t n = 0; n < arguments.named.size(); ++n) {
    const auto& [key, value] = arguments.named[n];
    if (used[n]) continue;
    if (declaration_.uses_caller && key == "caller") {
      caller = value;
    } else if (declaration_.uses_kwargs) {
      rest.emplace_back(runtime.make_string(std::string(key)), value);
    } else {
      runtime.fail(fmt::format("macro '{}' has no argument '{}'", name, key));
      return false;
    }
  }
  const std::size_t count = declaration_.parameters.size();
  std::vector<Value> extra;
  if (arguments.positional.size() > count) {
    if (!declaration_.uses_varargs) {
      runtime.fail(fmt::format("macro '{}' takes at most {} arguments", name, count));
      return false;
    }
    extra.assign(arguments.positional.begin() + static_cast<std::ptrdiff_t>(count),
                 arguments.positional.end());
  }
  if (declaration_.uses_caller) scope.set(interpreter_.find_symbol("caller"), caller);
  if (declaration_.uses_kwargs) {
    scope.set(interpreter_.find_symbol("kwargs"), runtime.make_dict(std::move(rest)));
  }
  if (declaration_.uses_varargs) {
    scope.set(interpreter_.find_symbol("varargs"),
              runtime.make_list(std::move(extra), ListFlavour::kTuple));
  }
  return !runtime.failed();
}

Value MacroObject::call(Runtime& runtime, CallArguments& arguments) {
  Scope& scope = interpreter_.new_scope(&scope_);
  if (!bind(runtime, arguments, scope)) return {};
  return runtime.make_string(interpreter_.capture(declaration_.body, scope));
}

}  // namespace motley::jinja
