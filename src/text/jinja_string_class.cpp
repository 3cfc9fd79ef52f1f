// String methods that ask what kind of characters a string has.
#include "text/jinja_native.h"
#include "text/jinja_unicode.h"

namespace motley::jinja {
namespace {

using CharacterClass = bool (*)(char32_t);

bool is_alnum(char32_t c) {
  return is_alpha(c) || is_numeric(c);
}

template <CharacterClass character_class, bool when_empty = false>
Value all_are(Runtime& runtime, const Value& self, CallArguments&) {
  if (!runtime.step_bytes(self.text().size() * 4)) return {};
  const std::string_view text = self.text();
  if (text.empty()) return Value::boolean(when_empty);
  std::size_t position = 0;
  while (position < text.size()) {
    if (!character_class(next_code_point(text, position))) return Value::boolean(false);
  }
  return Value::boolean(true);
}

bool is_ascii_character(char32_t c) {
  return c < 0x80;
}

template <bool upper>
Value has_case(Runtime& runtime, const Value& self, CallArguments&) {
  if (!runtime.step_bytes(self.text().size() * 4)) return {};
  bool found = false;
  for (const char32_t c : decode_utf8(self.text())) {
    if (is_title(c) || (upper ? is_lower(c) : is_upper(c))) return Value::boolean(false);
    found |= upper ? is_upper(c) : is_lower(c);
  }
  return Value::boolean(found);
}

Value is_title_text(Runtime& runtime, const Value& self, CallArguments&) {
  if (!runtime.step_bytes(self.text().size() * 4)) return {};
  bool found = false;
  bool after_cased = false;
  for (const char32_t c : decode_utf8(self.text())) {
    const bool starts = is_upper(c) || is_title(c);
    const bool continues = is_lower(c);
    if ((starts && after_cased) || (continues && !after_cased)) return Value::boolean(false);
    after_cased = starts || continues;
    found |= after_cased;
  }
  return Value::boolean(found);
}

Value is_identifier(Runtime& runtime, const Value& self, CallArguments&) {
  if (!runtime.step_bytes(self.text().size() * 4)) return {};
  const std::string_view text = self.text();
  std::size_t position = 0;
  while (position < text.size()) {
    const bool first = position == 0;
    const char32_t c = next_code_point(text, position);
    if (!is_word(c) || (first && is_numeric(c))) return Value::boolean(false);
  }
  return Value::boolean(!text.empty());
}

constexpr NativeDefinition kMethods[] = {
    {"isspace", all_are<is_space>},
    {"isalpha", all_are<is_alpha>},
    {"isalnum", all_are<is_alnum>},
    {"isdecimal", all_are<is_decimal>},
    {"isdigit", all_are<is_digit>},
    {"isnumeric", all_are<is_numeric>},
    {"isprintable", all_are<is_printable, true>},
    {"isascii", all_are<is_ascii_character, true>},
    {"isupper", has_case<true>},
    {"islower", has_case<false>},
    {"istitle", is_title_text},
    {"isidentifier", is_identifier},
};

}  // namespace

std::span<const NativeDefinition> string_class_methods() {
  return kMethods;
}

}  // namespace motley::jinja
