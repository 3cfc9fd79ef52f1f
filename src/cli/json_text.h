// JSON as the verbs read and write it.
// Thread rule: pure functions.
#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <string_view>

#include "base/status.h"

namespace motley {

// kCorrupt with the position when `text` is not one JSON value. `name` serves the message.
Result<nlohmann::ordered_json> parse_json_text(std::string_view text, std::string_view name);

// Indented, with a newline at the end; invalid UTF-8 becomes U+FFFD.
std::string dump_json(const nlohmann::ordered_json& value);

}  // namespace motley
