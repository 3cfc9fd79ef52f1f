// str.format: replacement fields in braces.
#include <fmt/format.h>

#include <optional>

#include "text/jinja_format.h"
#include "text/jinja_format_spec.h"
#include "text/jinja_number.h"
#include "text/jinja_ops.h"
#include "text/jinja_print.h"
#include "text/jinja_unicode.h"

namespace motley::jinja {
namespace {

class BraceFormatter {
 public:
  BraceFormatter(Runtime& runtime, const StringData& format, const CallArguments& arguments)
      : runtime_(runtime),
        format_(format.text),
        safe_(format.safe),
        arguments_(arguments),
        out_(runtime) {}

  Value run() {
    std::size_t position = 0;
    while (position < format_.size() && runtime_.step()) {
      const std::size_t brace = format_.find_first_of("{}", position);
      out_.add(format_.substr(position, brace - position));
      if (brace == std::string_view::npos) break;
      if (brace + 1 < format_.size() && format_[brace + 1] == format_[brace]) {
        out_.add(format_.substr(brace, 1));
        position = brace + 2;
        continue;
      }
      const std::size_t close = format_.find_first_of("{}", brace + 1);
      if (format_[brace] == '}' || close == std::string_view::npos || format_[close] == '{') {
        return runtime_.fail("a format string has a brace without its partner or nested fields");
      }
      field(format_.substr(brace + 1, close - brace - 1));
      position = close + 1;
    }
    return out_.finish(safe_);
  }

 private:
  void field(std::string_view text) {
    std::string_view spec;
    if (const std::size_t colon = text.find(':'); colon != std::string_view::npos) {
      spec = text.substr(colon + 1);
      text = text.substr(0, colon);
    }
    char conversion = '\0';
    if (const std::size_t mark = text.find('!'); mark != std::string_view::npos) {
      conversion = mark + 2 == text.size() ? text[mark + 1] : '?';
      text = text.substr(0, mark);
      if (conversion != 's' && conversion != 'r') {
        runtime_.fail("a format field has an unknown conversion after '!'");
        return;
      }
    }
    Value value = lookup(text);
    if (runtime_.failed()) return;
    if (conversion != '\0') {
      TextBuilder converted(runtime_);
      if (conversion == 's') {
        append_str(runtime_, converted, value);
      } else {
        append_repr(runtime_, converted, value);
      }
      value = converted.finish();
    }
    write(value, spec);
  }

  Value lookup(std::string_view path) {
    const std::size_t end = std::min(path.find_first_of(".["), path.size());
    Value value = first_value(path.substr(0, end));
    path.remove_prefix(end);
    while (!path.empty() && !runtime_.failed()) {
      if (path[0] == '.') {
        path.remove_prefix(1);
        const std::size_t stop = std::min(path.find_first_of(".["), path.size());
        value = get_attribute(runtime_, value, path.substr(0, stop));
        path.remove_prefix(stop);
        continue;
      }
      const std::size_t stop = path.find(']');
      if (path[0] != '[' || stop == std::string_view::npos) {
        return runtime_.fail("a format field has a '[' without ']'");
      }
      const std::string_view key = path.substr(1, stop - 1);
      const auto index = parse_integer(key, 10);
      value = get_item(runtime_, value,
                       index ? Value::integer(*index) : runtime_.make_string(std::string(key)));
      path.remove_prefix(stop + 1);
    }
    return value;
  }

  Value first_value(std::string_view name) {
    const auto number =
        name.empty() ? std::optional<std::int64_t>(next_index_++) : parse_integer(name, 10);
    if (number) {
      const auto index = static_cast<std::size_t>(*number);
      if (*number < 0 || index >= arguments_.positional.size()) {
        return runtime_.fail("a format field has no matching argument");
      }
      return arguments_.positional[index];
    }
    for (const auto& entry : arguments_.named) {
      if (entry.first == name) return entry.second;
    }
    return runtime_.fail(fmt::format("a format field has no argument '{}'", name));
  }

  std::optional<FormatSpec> read_spec(std::string_view text) {
    FormatSpec spec;
    std::size_t position = 0;
    const auto is_align = [&](std::size_t at) {
      return at < text.size() && std::string_view("<>^=").find(text[at]) != std::string_view::npos;
    };
    const auto take = [&](char wanted) {
      const bool found = position < text.size() && text[position] == wanted;
      position += found ? 1 : 0;
      return found;
    };
    std::size_t after_fill = 0;
    if (!text.empty()) next_code_point(text, after_fill);
    if (after_fill > 0 && is_align(after_fill)) {
      spec.fill = text.substr(0, after_fill);
      position = after_fill;
    }
    if (is_align(position)) spec.align = text[position++];
    for (const char sign : {'+', '-', ' '}) {
      if (take(sign)) spec.sign = sign;
    }
    spec.alternate = take('#');
    if (take('0') && spec.align == '\0') {
      spec.fill = "0";
      spec.align = '=';
    }
    const auto digits = [&](std::int64_t& value) {
      const std::size_t begin = position;
      while (position < text.size() && text[position] >= '0' && text[position] <= '9') ++position;
      const auto number = parse_integer(text.substr(begin, position - begin), 10);
      if (number) value = *number;
      return number.has_value() && *number <= 1'000'000'000;
    };
    digits(spec.width);
    if (spec.width > 1'000'000'000) return std::nullopt;
    for (const char grouping : {',', '_'}) {
      if (take(grouping)) spec.grouping = grouping;
    }
    if (take('.')) {
      std::int64_t precision = 0;
      if (!digits(precision)) return std::nullopt;
      spec.precision = static_cast<int>(precision);
    }
    if (position < text.size()) spec.type = text[position++];
    if (position != text.size()) return std::nullopt;
    return spec;
  }

  void write(const Value& value, std::string_view text) {
    if (text.empty()) {
      TextBuilder plain(runtime_);
      append_str(runtime_, plain, value);
      const bool escaped = value.is_string() && value.as_string().safe;
      const std::string written = plain.take();
      out_.add(safe_ && !escaped ? escape_html(written) : written);
      return;
    }
    const auto spec = read_spec(text);
    if (!spec) {
      runtime_.fail(fmt::format("format '{}' is not understood", text));
    } else if (value.is_number()) {
      append_number(runtime_, out_, value, *spec);
    } else if (value.is_string() && (spec->type == 's' || spec->type == '\0') &&
               spec->align != '=' && spec->sign == '-' && spec->grouping == '\0') {
      append_padded(out_, value.text(), *spec, '<');
    } else {
      runtime_.fail(fmt::format("format '{}' does not work for a {}", text, type_name(value)));
    }
  }

  Runtime& runtime_;
  const std::string_view format_;
  const bool safe_;
  const CallArguments& arguments_;
  TextBuilder out_;
  std::int64_t next_index_ = 0;
};

}  // namespace

Value brace_format(Runtime& runtime, const Value& format, const CallArguments& arguments) {
  return BraceFormatter(runtime, format.as_string(), arguments).run();
}

}  // namespace motley::jinja
