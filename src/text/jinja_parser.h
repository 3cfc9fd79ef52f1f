// Builds the syntax tree of a template. Grammar: Jinja2 3.1 with the loop control extension and
// the `generation` block of chat templates, less inheritance, includes, imports, recursive loops
// and autoescape (each refused by name).
//
// Thread rule: pure function. Errors: "line N: ..."; kInvalidArgument for syntax, kUnsupported for
// the parts left out, kResourceExhausted for source size and nesting.
#pragma once

#include <string_view>

#include "base/status.h"
#include "text/jinja_ast.h"
#include "text/jinja_limits.h"

namespace motley::jinja {

Result<SyntaxTree> parse_template(std::string_view source, const JinjaLimits& limits);

}  // namespace motley::jinja
