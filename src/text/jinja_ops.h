// Python's operators on template values.
//
// Thread rule: the Runtime and the values belong to the calling rendering. Errors: sticky in the
// Runtime; the returned value is then undefined (or false).
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "text/jinja_ast.h"
#include "text/jinja_runtime.h"
#include "text/jinja_value.h"

namespace motley::jinja {

bool truthy(const Value& value);
bool is_hashable(const Value& value);

bool equals(Runtime& runtime, const Value& left, const Value& right);
// Python's `<`; an error for types without an order between them.
bool less(Runtime& runtime, const Value& left, const Value& right);
bool compare(Runtime& runtime, Operator op, const Value& left, const Value& right);
// `item in container`.
bool contains(Runtime& runtime, const Value& container, const Value& item);

Value binary(Runtime& runtime, Operator op, const Value& left, const Value& right);
Value unary(Runtime& runtime, Operator op, const Value& operand);

// len(value), or nothing (no error) when the type has no length.
std::optional<std::int64_t> length_of(const Value& value);

// The items a `for` would visit. Empty for undefined; an error for what cannot be iterated.
// An iterator is used up.
std::vector<Value> iterate(Runtime& runtime, const Value& value);
bool is_iterable(const Value& value);

// `object.name` and `object[key]` with Jinja2's fall-back from one to the other.
Value get_attribute(Runtime& runtime, const Value& object, std::string_view name);
Value get_item(Runtime& runtime, const Value& object, const Value& key);
// The entry of a dict under any hashable key, or null.
const Value* find_entry(Runtime& runtime, const DictData& dict, const Value& key);
// object[start:stop:step]; missing bounds are none.
Value slice(Runtime& runtime, const Value& object, const Value& start, const Value& stop,
            const Value& step);

// "'name' is undefined" or the like; the error of using an undefined value.
std::string undefined_message(const Value& value);

// Adds `<`, `>`, `&`, `'` and `"` as entities.
std::string escape_html(std::string_view text);

}  // namespace motley::jinja
