// A JSON tree as text, indented by two spaces; numbers keep their value.
#pragma once

#include <string>

#include "spec/config_json.h"

namespace motley {

std::string json_text(const JsonValue& value);

}  // namespace motley
