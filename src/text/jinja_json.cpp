// JSON output of the `tojson` filter: json.dumps of Python, without HTML escaping.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "text/jinja_number.h"
#include "text/jinja_ops.h"
#include "text/jinja_print.h"
#include "text/jinja_unicode.h"

namespace motley::jinja {
namespace {

class JsonWriter {
 public:
  JsonWriter(Runtime& runtime, TextBuilder& out, const JsonStyle& style)
      : runtime_(runtime), out_(out), style_(style) {}

  void write(const Value& value) {
    if (!runtime_.step()) return;
    switch (value.kind()) {
      case ValueKind::kNone:
      case ValueKind::kBool:
      case ValueKind::kInt:
      case ValueKind::kFloat:
        out_.add(scalar(value));
        return;
      case ValueKind::kString:
        return write_string(value.text());
      case ValueKind::kList:
        return write_list(value);
      case ValueKind::kDict:
        return write_dict(value.as_dict());
      default:
        refuse(value);
    }
  }

 private:
  void refuse(const Value& value) {
    runtime_.fail(fmt::format("tojson cannot write a {}", type_name(value)));
  }

  static std::string scalar(const Value& value) {
    if (value.is_none()) return "null";
    if (value.is(ValueKind::kBool)) return value.as_bool() ? "true" : "false";
    if (value.is(ValueKind::kInt)) return std::to_string(value.as_int());
    const double real = value.as_double();
    if (std::isnan(real)) return "NaN";
    if (std::isinf(real)) return real < 0 ? "-Infinity" : "Infinity";
    return float_repr(real);
  }

  void write_string(std::string_view text) {
    if (!runtime_.step_bytes(text.size())) return;
    std::string quoted = "\"";
    std::size_t position = 0;
    while (position < text.size()) {
      const std::size_t start = position;
      const char32_t c = next_code_point(text, position);
      append_character(quoted, c, text.substr(start, position - start));
    }
    out_.add(quoted += '"');
  }

  void append_character(std::string& out, char32_t c, std::string_view bytes) const {
    static constexpr std::string_view kPlain = "\"\\\n\r\t\f\b";
    static constexpr std::string_view kEscape = "\"\\nrtfb";
    const std::size_t known = c < 0x80 ? kPlain.find(static_cast<char>(c)) : std::string_view::npos;
    if (known != std::string_view::npos) {
      out += '\\';
      out += kEscape[known];
    } else if (c < 0x20 || (style_.ensure_ascii && c >= 0x7F && c <= 0xFFFF)) {
      out += fmt::format("\\u{:04x}", static_cast<std::uint32_t>(c));
    } else if (style_.ensure_ascii && c > 0xFFFF) {
      const auto offset = static_cast<std::uint32_t>(c) - 0x10000;
      out += fmt::format("\\u{:04x}\\u{:04x}", 0xD800 + (offset >> 10), 0xDC00 + (offset & 0x3FF));
    } else {
      out += bytes;
    }
  }

  void new_line() {
    if (!style_.indent) return;
    out_.add("\n");
    out_.add_repeated(*style_.indent, level_);
  }

  void write_list(const Value& value) {
    const ListData& list = value.as_list();
    if (list.flavour != ListFlavour::kList && list.flavour != ListFlavour::kTuple &&
        list.flavour != ListFlavour::kGroup) {
      return refuse(value);
    }
    out_.add("[");
    ++level_;
    for (std::size_t i = 0; i < list.items.size() && !runtime_.failed(); ++i) {
      if (i != 0) out_.add(style_.item_separator);
      new_line();
      write(list.items[i]);
    }
    --level_;
    if (!list.items.empty()) new_line();
    out_.add("]");
  }

  void write_dict(const DictData& dict) {
    std::vector<const std::pair<Value, Value>*> entries;
    for (const auto& entry : dict.entries) entries.push_back(&entry);
    if (style_.sort_keys) sort_entries(entries);
    out_.add("{");
    ++level_;
    bool first = true;
    for (const auto* entry : entries) {
      if (runtime_.failed()) return;
      if (!first) out_.add(style_.item_separator);
      first = false;
      new_line();
      write_key(entry->first);
      out_.add(style_.key_separator);
      write(entry->second);
    }
    --level_;
    if (!entries.empty()) new_line();
    out_.add("}");
  }

  void sort_entries(std::vector<const std::pair<Value, Value>*>& entries) {
    std::stable_sort(entries.begin(), entries.end(), [this](const auto* left, const auto* right) {
      return !runtime_.failed() && less(runtime_, left->first, right->first);
    });
  }

  void write_key(const Value& key) {
    if (key.is_string()) return write_string(key.text());
    if (!key.is_none() && !key.is_number()) {
      runtime_.fail(fmt::format("tojson cannot write a {} as a key", type_name(key)));
      return;
    }
    write_string(scalar(key));
  }

  Runtime& runtime_;
  TextBuilder& out_;
  const JsonStyle& style_;
  std::int64_t level_ = 0;
};

}  // namespace

void append_json(Runtime& runtime, TextBuilder& out, const Value& value, const JsonStyle& style) {
  JsonWriter(runtime, out, style).write(value);
}

}  // namespace motley::jinja
