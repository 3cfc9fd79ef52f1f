// Values as text: str(), repr() and JSON.
//
// Thread rule: as the Runtime. Errors: sticky in the Runtime.
#pragma once

#include <optional>
#include <string>

#include "text/jinja_runtime.h"
#include "text/jinja_value.h"

namespace motley::jinja {

// str(value), what `{{ value }}` prints.
void append_str(Runtime& runtime, TextBuilder& out, const Value& value);
std::string to_str(Runtime& runtime, const Value& value);
// repr(value).
void append_repr(Runtime& runtime, TextBuilder& out, const Value& value);
std::string string_repr(std::string_view text);

// json.dumps with the settings of the `tojson` filter in chat templates.
struct JsonStyle {
  bool ensure_ascii = false;
  bool sort_keys = false;
  std::optional<std::string> indent;  // one level of indentation
  std::string item_separator = ", ";
  std::string key_separator = ": ";
};
void append_json(Runtime& runtime, TextBuilder& out, const Value& value, const JsonStyle& style);

}  // namespace motley::jinja
