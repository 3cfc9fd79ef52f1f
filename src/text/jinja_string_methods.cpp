// String methods that make new strings. A safe (escaped) receiver gives safe results, and plain
// text put into it is escaped, as Jinja2's Markup does.
#include <fmt/format.h>

#include <algorithm>

#include "text/jinja_format.h"
#include "text/jinja_native.h"
#include "text/jinja_ops.h"
#include "text/jinja_print.h"
#include "text/jinja_unicode.h"

namespace motley::jinja {
namespace {

using Mapping = std::string (*)(std::string_view);

template <Mapping mapping>
Value mapped(Runtime& runtime, const Value& self, CallArguments&) {
  if (!runtime.step_bytes(self.text().size() * 4)) return {};
  return runtime.make_string(mapping(self.text()), self.as_string().safe);
}

// A text argument on its way into the receiver.
std::string text_argument(Runtime& runtime, const Value& self, const Value& value,
                          std::string_view otherwise) {
  const std::string text = string_argument(runtime, value, otherwise);
  const bool plain = value.is_string() && !value.as_string().safe;
  return self.as_string().safe && plain ? escape_html(text) : text;
}

template <Side side>
Value strip(Runtime& runtime, const Value& self, CallArguments& arguments) {
  const Value& characters = argument(arguments, 0);
  std::string_view stripped;
  if (characters.is_missing() || characters.is_none()) {
    if (!runtime.step_bytes(self.text().size())) return {};
    stripped = strip_space(self.text(), side);
  } else {
    const std::string set = text_argument(runtime, self, characters, "");
    if (!runtime.step_bytes(self.text().size() + set.size() * 64)) return {};
    stripped = strip_characters(self.text(), set, side);
  }
  return runtime.make_string(std::string(stripped), self.as_string().safe);
}

template <char align>
Value justify(Runtime& runtime, const Value& self, CallArguments& arguments) {
  const std::int64_t width = integer_argument(runtime, argument(arguments, 0), 0);
  const std::string fill = text_argument(runtime, self, argument(arguments, 1), " ");
  if (count_code_points(fill) != 1) {
    return runtime.fail("a fill must be exactly one character");
  }
  const auto length = static_cast<std::int64_t>(self.as_string().code_points);
  const std::int64_t padding = width > length ? width - length : 0;
  // Python's centre puts the odd space left only when the width is odd.
  const std::int64_t centre_left = padding / 2 + (padding & width & 1);
  const std::int64_t left = align == '>' ? padding : (align == '^' ? centre_left : 0);
  TextBuilder out(runtime);
  out.add_repeated(fill, left);
  out.add(self.text());
  out.add_repeated(fill, padding - left);
  return out.finish(self.as_string().safe);
}

Value zero_fill(Runtime& runtime, const Value& self, CallArguments& arguments) {
  const std::int64_t width = integer_argument(runtime, argument(arguments, 0), 0);
  const auto length = static_cast<std::int64_t>(self.as_string().code_points);
  std::string_view text = self.text();
  TextBuilder out(runtime);
  if (!text.empty() && (text[0] == '-' || text[0] == '+')) {
    out.add(text.substr(0, 1));
    text.remove_prefix(1);
  }
  out.add_repeated("0", width > length ? width - length : 0);
  out.add(text);
  return out.finish(self.as_string().safe);
}

Value expand_tabs(Runtime& runtime, const Value& self, CallArguments& arguments) {
  const std::int64_t size = integer_argument(runtime, argument(arguments, 0), 8);
  TextBuilder out(runtime);
  std::int64_t column = 0;
  std::string_view text = self.text();
  std::size_t position = 0;
  while (position < text.size() && runtime.step()) {
    const std::size_t start = position;
    const char32_t c = next_code_point(text, position);
    if (c == '\t') {
      const std::int64_t spaces = size > 0 ? size - column % size : 0;
      out.add_repeated(" ", spaces);
      column += spaces;
      continue;
    }
    column = c == '\n' || c == '\r' ? 0 : column + 1;
    out.add(text.substr(start, position - start));
  }
  return out.finish(self.as_string().safe);
}

Value join(Runtime& runtime, const Value& self, CallArguments& arguments) {
  const bool safe = self.as_string().safe;
  TextBuilder out(runtime);
  const std::vector<Value> items = iterate(runtime, argument(arguments, 0));
  if (argument(arguments, 0).is_undefined()) {
    // Python can join it: an undefined value is an empty sequence.
    return runtime.make_string("", safe);
  }
  for (std::size_t i = 0; i < items.size() && runtime.step(); ++i) {
    const Value& item = items[i];
    if (i != 0) out.add(self.text());
    if (safe) {
      const std::string text = to_str(runtime, item);
      out.add(item.is_string() && item.as_string().safe ? text : escape_html(text));
    } else if (item.is_string()) {
      out.add(item.text());
    } else {
      return runtime.fail(fmt::format("join() needs strings, not a {}", type_name(item)));
    }
  }
  return out.finish(safe);
}

Value remove_prefix(Runtime& runtime, const Value& self, CallArguments& arguments) {
  const std::string prefix = text_argument(runtime, self, argument(arguments, 0), "");
  std::string_view text = self.text();
  if (text.substr(0, prefix.size()) == prefix) text.remove_prefix(prefix.size());
  return runtime.make_string(std::string(text), self.as_string().safe);
}

Value remove_suffix(Runtime& runtime, const Value& self, CallArguments& arguments) {
  const std::string suffix = text_argument(runtime, self, argument(arguments, 0), "");
  std::string_view text = self.text();
  if (text.size() >= suffix.size() && text.substr(text.size() - suffix.size()) == suffix) {
    text.remove_suffix(suffix.size());
  }
  return runtime.make_string(std::string(text), self.as_string().safe);
}

Value format(Runtime& runtime, const Value& self, CallArguments& arguments) {
  return brace_format(runtime, self, arguments);
}

constexpr NativeDefinition kMethods[] = {
    {"upper", mapped<to_upper>},
    {"lower", mapped<to_lower>},
    {"title", mapped<to_title>},
    {"capitalize", mapped<to_capitalized>},
    {"swapcase", mapped<to_swapped_case>},
    {"casefold", mapped<to_casefold>},
    {"strip", strip<Side::kBoth>, 0, {"chars"}, false},
    {"lstrip", strip<Side::kLeft>, 0, {"chars"}, false},
    {"rstrip", strip<Side::kRight>, 0, {"chars"}, false},
    {"center", justify<'^'>, 1, {"width", "fillchar"}, false},
    {"ljust", justify<'<'>, 1, {"width", "fillchar"}, false},
    {"rjust", justify<'>'>, 1, {"width", "fillchar"}, false},
    {"zfill", zero_fill, 1, {"width"}, false},
    {"expandtabs", expand_tabs, 0, {"tabsize"}},
    {"join", join, 1, {"iterable"}, false},
    {"removeprefix", remove_prefix, 1, {"prefix"}, false},
    {"removesuffix", remove_suffix, 1, {"suffix"}, false},
    {"format", format, 0, {}, true, true},
};

}  // namespace

std::span<const NativeDefinition> string_methods() {
  return kMethods;
}

}  // namespace motley::jinja
