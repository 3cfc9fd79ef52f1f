// JSON data as template values.
#pragma once

#include <nlohmann/json_fwd.hpp>

#include "text/jinja_ast.h"
#include "text/jinja_runtime.h"

namespace motley::jinja {

// The entries of `context` (an object) that the template mentions. Fails (sticky) on broken UTF-8,
// integers beyond 64 bits and nesting beyond the limit.
Value read_context(Runtime& runtime, const nlohmann::ordered_json& context, const SyntaxTree& tree);

}  // namespace motley::jinja
