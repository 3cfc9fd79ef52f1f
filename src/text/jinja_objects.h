// Objects that templates make: namespaces, cyclers, joiners.
#pragma once

#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "text/jinja_value.h"

namespace motley::jinja {

// The only thing a template can assign to from inside a loop.
struct NamespaceObject : Object {
  std::vector<std::pair<std::string, Value>> attributes;

  std::string_view type_name() const override { return "namespace"; }
  Value attribute(Runtime& runtime, std::string_view name) override;
  void set(std::string_view name, const Value& value);
};

}  // namespace motley::jinja
