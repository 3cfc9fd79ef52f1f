// String methods that search, split and replace.
#include <fmt/format.h>

#include <algorithm>
#include <limits>
#include <optional>

#include "text/jinja_native.h"
#include "text/jinja_ops.h"
#include "text/jinja_print.h"
#include "text/jinja_unicode.h"

namespace motley::jinja {
namespace {

// The part of the subject between the optional start and end, in code points.
struct Window {
  std::string_view text;
  std::size_t first = 0;  // code points before it
  bool valid = true;      // false when the start lies behind the end
};

Window window_of(Runtime& runtime, const Value& self, const Value& start, const Value& end) {
  const StringData& string = self.as_string();
  const auto size = static_cast<std::int64_t>(string.code_points);
  const auto bound = [&](const Value& value, std::int64_t otherwise) {
    const std::int64_t at =
        value.is_none() ? otherwise : integer_argument(runtime, value, otherwise);
    return at < 0 ? std::max<std::int64_t>(at + size, 0) : at;
  };
  const std::int64_t first = bound(start, 0);
  const std::int64_t last = std::min(bound(end, size), size);
  Window window;
  if (!runtime.step_bytes(string.text.size()) || first > last) {
    window.valid = false;
    return window;
  }
  window.first = static_cast<std::size_t>(first);
  const std::size_t begin = byte_offset(string.text, window.first, string.is_ascii());
  const std::string_view rest = std::string_view(string.text).substr(begin);
  window.text =
      rest.substr(0, byte_offset(rest, static_cast<std::size_t>(last - first), string.is_ascii()));
  return window;
}

template <bool at_end>
Value affix(Runtime& runtime, const Value& self, CallArguments& arguments) {
  const Value& wanted = argument(arguments, 0);
  const Window window = window_of(runtime, self, argument(arguments, 1), argument(arguments, 2));
  const auto matches = [&](const Value& text) {
    const std::string affix_text = string_argument(runtime, text, "");
    if (!window.valid || affix_text.size() > window.text.size()) return false;
    const std::size_t at = at_end ? window.text.size() - affix_text.size() : 0;
    return window.text.substr(at, affix_text.size()) == affix_text;
  };
  if (wanted.is_list() && wanted.as_list().flavour == ListFlavour::kTuple) {
    const auto& choices = wanted.as_list().items;
    return Value::boolean(std::any_of(choices.begin(), choices.end(), matches));
  }
  return Value::boolean(matches(wanted));
}

enum class Missing { kMinusOne, kError };

template <bool from_end, Missing missing>
Value find(Runtime& runtime, const Value& self, CallArguments& arguments) {
  const std::string wanted = string_argument(runtime, argument(arguments, 0), "");
  const Window window = window_of(runtime, self, argument(arguments, 1), argument(arguments, 2));
  const std::size_t at = !window.valid
                             ? std::string_view::npos
                             : (from_end ? window.text.rfind(wanted) : window.text.find(wanted));
  if (at != std::string_view::npos) {
    const std::size_t before = count_code_points(window.text.substr(0, at));
    return Value::integer(static_cast<std::int64_t>(window.first + before));
  }
  if (missing == Missing::kError) return runtime.fail("index() finds no such text");
  return Value::integer(-1);
}

Value count(Runtime& runtime, const Value& self, CallArguments& arguments) {
  const std::string wanted = string_argument(runtime, argument(arguments, 0), "");
  const Window window = window_of(runtime, self, argument(arguments, 1), argument(arguments, 2));
  if (!window.valid) return Value::integer(0);
  if (wanted.empty()) {
    return Value::integer(static_cast<std::int64_t>(count_code_points(window.text)) + 1);
  }
  std::int64_t found = 0;
  for (std::size_t at = window.text.find(wanted); at != std::string_view::npos;
       at = window.text.find(wanted, at + wanted.size())) {
    ++found;
  }
  return Value::integer(found);
}

Value replace(Runtime& runtime, const Value& self, CallArguments& arguments) {
  const bool safe = self.as_string().safe;
  const auto text_of = [&](const Value& value) {
    const std::string text = string_argument(runtime, value, "");
    return safe && value.is_string() && !value.as_string().safe ? escape_html(text) : text;
  };
  const std::string wanted = text_of(argument(arguments, 0));
  const std::string by = text_of(argument(arguments, 1));
  std::int64_t left = integer_argument(runtime, argument(arguments, 2), -1);
  if (left < 0) left = std::numeric_limits<std::int64_t>::max();
  const std::string_view text = self.text();
  if (!runtime.step_bytes(text.size())) return {};
  TextBuilder out(runtime);
  std::size_t position = 0;
  for (; left > 0 && runtime.step(); --left) {
    const std::size_t at = wanted.empty() ? position : text.find(wanted, position);
    if (at == std::string_view::npos) break;
    out.add(text.substr(position, at - position));
    out.add(by);
    position = at + wanted.size();
    if (!wanted.empty()) continue;
    // An empty text is found before each character and at the end.
    if (position >= text.size()) return out.finish(safe);
    std::size_t next = position;
    next_code_point(text, next);
    out.add(text.substr(position, next - position));
    position = next;
  }
  out.add(text.substr(std::min(position, text.size())));
  return out.finish(safe);
}

class Splitter {
 public:
  Splitter(Runtime& runtime, const Value& self)
      : runtime_(runtime), text_(self.text()), safe_(self.as_string().safe) {}

  Value by_text(std::string_view separator, std::int64_t limit, bool from_end) {
    if (separator.empty()) return runtime_.fail("split() needs a separator that is not empty");
    std::string_view rest = text_;
    while (limit-- > 0 && runtime_.step()) {
      const std::size_t at = from_end ? rest.rfind(separator) : rest.find(separator);
      if (at == std::string_view::npos) break;
      const std::string_view after = rest.substr(at + separator.size());
      add(from_end ? after : rest.substr(0, at));
      rest = from_end ? rest.substr(0, at) : after;
    }
    add(rest);
    return finish(from_end);
  }

  Value by_space(std::int64_t limit, bool from_end) {
    const Side outer = from_end ? Side::kRight : Side::kLeft;
    std::string_view rest = strip_space(text_, outer);
    while (!rest.empty() && runtime_.step()) {
      if (limit-- <= 0) {
        add(strip_space(rest, outer));
        break;
      }
      const std::size_t cut = from_end ? last_word(rest) : first_word(rest);
      add(from_end ? rest.substr(cut) : rest.substr(0, cut));
      rest = strip_space(from_end ? rest.substr(0, cut) : rest.substr(cut), outer);
    }
    return finish(from_end);
  }

 private:
  static std::size_t first_word(std::string_view text) {
    std::size_t position = 0;
    while (position < text.size()) {
      std::size_t next = position;
      if (is_space(next_code_point(text, next))) break;
      position = next;
    }
    return position;
  }

  // Start of the last word of a text that does not end in white space.
  static std::size_t last_word(std::string_view text) {
    std::size_t start = text.size();
    while (start > 0) {
      std::size_t previous = start - 1;
      while (previous > 0 && (static_cast<unsigned char>(text[previous]) & 0xC0) == 0x80)
        --previous;
      std::size_t next = previous;
      if (is_space(next_code_point(text, next))) break;
      start = previous;
    }
    return start;
  }

  void add(std::string_view part) {
    parts_.push_back(runtime_.make_string(std::string(part), safe_));
  }

  Value finish(bool reversed) {
    if (reversed) std::reverse(parts_.begin(), parts_.end());
    return runtime_.make_list(std::move(parts_));
  }

  Runtime& runtime_;
  const std::string_view text_;
  const bool safe_;
  std::vector<Value> parts_;
};

template <bool from_end>
Value split(Runtime& runtime, const Value& self, CallArguments& arguments) {
  std::int64_t limit = integer_argument(runtime, argument(arguments, 1), -1);
  if (limit < 0) limit = std::numeric_limits<std::int64_t>::max();
  if (!runtime.step_bytes(self.text().size())) return {};
  const Value& separator = argument(arguments, 0);
  Splitter splitter(runtime, self);
  if (separator.is_missing() || separator.is_none()) return splitter.by_space(limit, from_end);
  return splitter.by_text(string_argument(runtime, separator, " "), limit, from_end);
}

template <bool from_end>
Value partition(Runtime& runtime, const Value& self, CallArguments& arguments) {
  const std::string separator = string_argument(runtime, argument(arguments, 0), "");
  if (separator.empty()) return runtime.fail("partition() needs a separator that is not empty");
  if (!runtime.step_bytes(self.text().size())) return {};
  const std::string_view text = self.text();
  const std::size_t at = from_end ? text.rfind(separator) : text.find(separator);
  const auto part = [&](std::string_view piece) {
    return runtime.make_string(std::string(piece), self.as_string().safe);
  };
  std::vector<Value> parts;
  if (at != std::string_view::npos) {
    parts = {part(text.substr(0, at)), part(separator), part(text.substr(at + separator.size()))};
  } else if (from_end) {
    parts = {part(""), part(""), part(text)};
  } else {
    parts = {part(text), part(""), part("")};
  }
  return runtime.make_list(std::move(parts), ListFlavour::kTuple);
}

Value split_lines_method(Runtime& runtime, const Value& self, CallArguments& arguments) {
  if (!runtime.step_bytes(self.text().size())) return {};
  std::vector<Value> lines;
  for (const std::string_view line : split_lines(self.text(), truthy(argument(arguments, 0)))) {
    lines.push_back(runtime.make_string(std::string(line), self.as_string().safe));
    if (runtime.failed()) return {};
  }
  return runtime.make_list(std::move(lines));
}

constexpr NativeDefinition kMethods[] = {
    {"startswith", affix<false>, 1, {"prefix", "start", "end"}, false},
    {"endswith", affix<true>, 1, {"suffix", "start", "end"}, false},
    {"find", find<false, Missing::kMinusOne>, 1, {"sub", "start", "end"}, false},
    {"rfind", find<true, Missing::kMinusOne>, 1, {"sub", "start", "end"}, false},
    {"index", find<false, Missing::kError>, 1, {"sub", "start", "end"}, false},
    {"rindex", find<true, Missing::kError>, 1, {"sub", "start", "end"}, false},
    {"count", count, 1, {"sub", "start", "end"}, false},
    {"replace", replace, 2, {"old", "new", "count"}, false},
    {"split", split<false>, 0, {"sep", "maxsplit"}},
    {"rsplit", split<true>, 0, {"sep", "maxsplit"}},
    {"partition", partition<false>, 1, {"sep"}, false},
    {"rpartition", partition<true>, 1, {"sep"}, false},
    {"splitlines", split_lines_method, 0, {"keepends"}},
};

}  // namespace

std::span<const NativeDefinition> string_search_methods() {
  return kMethods;
}

}  // namespace motley::jinja
