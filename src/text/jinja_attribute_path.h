// The `attribute` argument of list filters: "name", "a.b.0" or an index.
#pragma once

#include <vector>

#include "text/jinja_runtime.h"
#include "text/jinja_value.h"

namespace motley::jinja {

class AttributePath {
 public:
  // Missing or none: the item itself. Several paths may be separated by commas when
  // `allow_several`; the result is then a list of their values.
  AttributePath(Runtime& runtime, const Value& attribute, bool allow_several = false);

  // `otherwise` (if given) replaces undefined results along the way.
  Value of(const Value& item, const Value& otherwise = Value::missing()) const;

 private:
  Value follow(const std::vector<Value>& path, Value item, const Value& otherwise) const;

  Runtime& runtime_;
  std::vector<std::vector<Value>> paths_;
};

// Text in lower case for comparisons that ignore case; other values as they are.
Value ignore_case(Runtime& runtime, const Value& value);

}  // namespace motley::jinja
