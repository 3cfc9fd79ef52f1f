// The one form of template errors: "line N: message", on one line.
//
// Thread rule: pure function.
#pragma once

#include <string>
#include <string_view>

namespace motley::jinja {

// Messages may quote the template or its data: control characters become spaces and what goes
// beyond 400 characters is cut.
std::string error_line(int line, std::string_view message);

}  // namespace motley::jinja
