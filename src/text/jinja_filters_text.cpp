// Filters over text. Their subject is str(value), as in Jinja2.
#include <fmt/format.h>

#include <algorithm>

#include "text/jinja_format.h"
#include "text/jinja_native.h"
#include "text/jinja_ops.h"
#include "text/jinja_print.h"
#include "text/jinja_unicode.h"

namespace motley::jinja {
namespace {

bool is_safe(const Value& value) {
  return value.is_string() && value.as_string().safe;
}

// Text of the subject with its case mapped; upper bounds of the work are charged first.
template <typename Map>
Value mapped(Runtime& runtime, const Value& self, Map map) {
  const std::string text = to_str(runtime, self);
  if (!runtime.step_bytes(text.size() * 4)) return {};
  return runtime.make_string(map(text), is_safe(self));
}

Value upper(Runtime& runtime, const Value& self, CallArguments&) {
  return mapped(runtime, self, to_upper);
}

Value lower(Runtime& runtime, const Value& self, CallArguments&) {
  return mapped(runtime, self, to_lower);
}

Value capitalize(Runtime& runtime, const Value& self, CallArguments&) {
  return mapped(runtime, self, to_capitalized);
}

// Words begin after white space, hyphens and opening brackets.
std::string title_words(std::string_view text) {
  std::string out;
  std::size_t position = 0;
  while (position < text.size()) {
    const std::size_t start = position;
    const auto is_break = [](char32_t c) {
      return is_space(c) || c == '-' || c == '(' || c == '{' || c == '[' || c == '<';
    };
    bool breaking = false;
    std::size_t first_end = start;
    while (position < text.size()) {
      std::size_t next = position;
      const bool is = is_break(next_code_point(text, next));
      if (position == start) {
        breaking = is;
        first_end = next;
      } else if (is != breaking) {
        break;
      }
      position = next;
    }
    out += to_upper(text.substr(start, first_end - start));
    out += to_lower(text.substr(first_end, position - first_end));
  }
  return out;
}

Value title(Runtime& runtime, const Value& self, CallArguments&) {
  const Value made = mapped(runtime, self, title_words);
  return made.is_string() ? runtime.make_string(made.as_string().text) : made;
}

Value trim(Runtime& runtime, const Value& self, CallArguments& arguments) {
  const std::string text = to_str(runtime, self);
  if (!runtime.step_bytes(text.size())) return {};
  const Value& characters = argument(arguments, 0);
  if (characters.is_missing() || characters.is_none()) {
    return runtime.make_string(std::string(strip_space(text)), is_safe(self));
  }
  const std::string set = string_argument(runtime, characters, "");
  if (!runtime.step_bytes(text.size() * set.size())) return {};
  return runtime.make_string(std::string(strip_characters(text, set, Side::kBoth)), is_safe(self));
}

Value replace(Runtime& runtime, const Value& self, CallArguments& arguments) {
  CallArguments call;
  const auto plain = [&](const Value& value) {
    return runtime.make_string(to_str(runtime, value));
  };
  call.positional = {plain(argument(arguments, 0)), plain(argument(arguments, 1))};
  const Value& count = argument(arguments, 2);
  if (!count.is_missing() && !count.is_none()) call.positional.push_back(count);
  const Value text = plain(self);
  if (runtime.failed()) return {};
  return call_native(runtime, "filter", *find_native(string_search_methods(), "replace"), text,
                     call);
}

Value center(Runtime& runtime, const Value& self, CallArguments& arguments) {
  CallArguments call;
  call.positional = {Value::integer(integer_argument(runtime, argument(arguments, 0), 80))};
  const Value text = runtime.make_string(to_str(runtime, self), is_safe(self));
  if (runtime.failed()) return {};
  return call_native(runtime, "filter", *find_native(string_methods(), "center"), text, call);
}

Value indent(Runtime& runtime, const Value& self, CallArguments& arguments) {
  if (!self.is_string()) {
    return runtime.fail(fmt::format("filter 'indent' needs a string, not a {}", type_name(self)));
  }
  const Value& width = argument(arguments, 0);
  TextBuilder indentation(runtime);
  if (width.is_string()) {
    indentation.add(width.text());
  } else {
    indentation.add_repeated(" ", integer_argument(runtime, width, 4));
  }
  const std::string margin = indentation.take();
  const bool first = truthy(argument(arguments, 1));
  const bool blank = truthy(argument(arguments, 2));
  const std::string text = self.as_string().text + "\n";
  TextBuilder out(runtime);
  bool is_first_line = true;
  for (const std::string_view line : split_lines(text, false)) {
    if (!runtime.step()) return {};
    if (!is_first_line) out.add("\n");
    if (is_first_line ? first : (blank || !line.empty())) out.add(margin);
    out.add(line);
    is_first_line = false;
  }
  return out.finish(self.as_string().safe);
}

Value truncate(Runtime& runtime, const Value& self, CallArguments& arguments) {
  const std::int64_t length = integer_argument(runtime, argument(arguments, 0), 255);
  const bool kill_words = truthy(argument(arguments, 1));
  const std::string end = string_argument(runtime, argument(arguments, 2), "...");
  const Value& slack = argument(arguments, 3);
  const std::int64_t leeway = slack.is_none() ? 5 : integer_argument(runtime, slack, 5);
  const auto end_length = static_cast<std::int64_t>(count_code_points(end));
  if (length < end_length || leeway < 0) {
    return runtime.fail("filter 'truncate' needs a length of at least that of its end");
  }
  const auto measured = length_of(self);
  if (!measured) return runtime.fail(fmt::format("a {} has no length", type_name(self)));
  const std::int64_t size = *measured;
  if (size <= length || size - length <= leeway) return self;
  if (!self.is_string()) {
    return runtime.fail(fmt::format("filter 'truncate' needs a string, not a {}", type_name(self)));
  }
  const StringData& string = self.as_string();
  if (!runtime.step_bytes(string.text.size())) return {};
  const std::size_t cut =
      byte_offset(string.text, static_cast<std::size_t>(length - end_length), string.is_ascii());
  std::string kept = string.text.substr(0, cut);
  if (!kill_words) kept = kept.substr(0, kept.rfind(' '));
  return runtime.make_string(kept + end, string.safe);
}

Value word_count(Runtime& runtime, const Value& self, CallArguments&) {
  const std::string text = to_str(runtime, self);
  if (!runtime.step_bytes(text.size() * 4)) return {};
  std::int64_t words = 0;
  bool in_word = false;
  std::size_t position = 0;
  while (position < text.size()) {
    const bool is = is_word(next_code_point(text, position));
    words += is && !in_word ? 1 : 0;
    in_word = is;
  }
  return Value::integer(words);
}

Value string(Runtime& runtime, const Value& self, CallArguments&) {
  return self.is_string() ? self : runtime.make_string(to_str(runtime, self));
}

Value safe(Runtime& runtime, const Value& self, CallArguments&) {
  return runtime.make_string(to_str(runtime, self), true);
}

Value escape(Runtime& runtime, const Value& self, CallArguments&) {
  if (is_safe(self)) return self;
  const std::string text = to_str(runtime, self);
  if (!runtime.step_bytes(text.size() * 6)) return {};
  return runtime.make_string(escape_html(text), true);
}

Value force_escape(Runtime& runtime, const Value& self, CallArguments&) {
  const std::string text = to_str(runtime, self);
  if (!runtime.step_bytes(text.size() * 6)) return {};
  return runtime.make_string(escape_html(text), true);
}

Value format(Runtime& runtime, const Value& self, CallArguments& arguments) {
  if (!arguments.positional.empty() && !arguments.named.empty()) {
    return runtime.fail("filter 'format' takes arguments by position or by name, not both");
  }
  const Value text = runtime.make_string(to_str(runtime, self), is_safe(self));
  if (!text.is_string()) return {};
  if (arguments.named.empty()) {
    const Value tuple = runtime.make_list(arguments.positional, ListFlavour::kTuple);
    return tuple.is_list() ? percent_format(runtime, text, tuple) : Value();
  }
  std::vector<std::pair<Value, Value>> entries;
  for (const auto& [name, value] : arguments.named) {
    entries.emplace_back(runtime.make_string(std::string(name)), value);
  }
  return percent_format(runtime, text, runtime.make_dict(std::move(entries)));
}

constexpr NativeDefinition kFilters[] = {
    {"upper", upper},
    {"lower", lower},
    {"capitalize", capitalize},
    {"title", title},
    {"trim", trim, 0, {"chars"}},
    {"replace", replace, 2, {"old", "new", "count"}},
    {"center", center, 0, {"width"}},
    {"indent", indent, 0, {"width", "first", "blank"}},
    {"truncate", truncate, 0, {"length", "killwords", "end", "leeway"}},
    {"wordcount", word_count},
    {"string", string},
    {"safe", safe},
    {"escape", escape},
    {"e", escape},
    {"forceescape", force_escape},
    {"format", format, 0, {}, true, true},
};

}  // namespace

std::span<const NativeDefinition> text_filters() {
  return kFilters;
}

}  // namespace motley::jinja
