// Names of the built-in filters, tests and global functions, and calls of the first two.
//
// Thread rule: pure functions over constant tables; the Runtime belongs to the caller's rendering.
#pragma once

#include <string_view>

#include "text/jinja_value.h"

namespace motley::jinja {

bool is_filter_name(std::string_view name);
bool is_test_name(std::string_view name);
bool is_global_name(std::string_view name);

Value call_filter(Runtime& runtime, std::string_view name, const Value& value,
                  CallArguments& arguments);
bool call_test(Runtime& runtime, std::string_view name, const Value& value,
               CallArguments& arguments);
// Undefined when there is no such function.
Value global_function(Runtime& runtime, std::string_view name);

// Undefined when the type has no such method. Methods that change their object do not exist here.
Value bound_method(Runtime& runtime, const Value& receiver, std::string_view name);

}  // namespace motley::jinja
