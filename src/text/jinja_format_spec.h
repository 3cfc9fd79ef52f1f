// One formatted field: the common ground of `%` and `str.format`.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "text/jinja_runtime.h"
#include "text/jinja_value.h"

namespace motley::jinja {

struct FormatSpec {
  std::string fill = " ";
  char align = '\0';  // '<', '>', '^', '=' or none
  char sign = '-';    // '-', '+' or ' '
  bool alternate = false;
  char grouping = '\0';  // ',' or '_'
  std::int64_t width = 0;
  int precision = -1;
  char type = '\0';
};

// Number as text with sign, prefix, digits and padding; fails for a type that does not fit.
void append_number(Runtime& runtime, TextBuilder& out, const Value& value, const FormatSpec& spec);
// Text cut to the precision and padded.
void append_padded(TextBuilder& out, std::string_view text, const FormatSpec& spec,
                   char default_align);

}  // namespace motley::jinja
