// printf-style (`%`) and brace-style (`str.format`) formatting with Python's rules.
//
// Not included: `*` widths, `%c`, nested replacement fields, locale types. Each is refused by name.
// Thread rule: as the Runtime. Errors: sticky in the Runtime.
#pragma once

#include "text/jinja_runtime.h"
#include "text/jinja_value.h"

namespace motley::jinja {

// format % arguments: a tuple gives several arguments, a dict named ones.
Value percent_format(Runtime& runtime, const Value& format, const Value& arguments);

// format.format(*arguments, **named).
Value brace_format(Runtime& runtime, const Value& format, const CallArguments& arguments);

}  // namespace motley::jinja
