#include "text/jinja_print.h"

#include <fmt/format.h>

#include "text/jinja_number.h"
#include "text/jinja_unicode.h"

namespace motley::jinja {
namespace {

void append_items(Runtime& runtime, TextBuilder& out, const std::vector<Value>& items,
                  std::string_view open, std::string_view close) {
  out.add(open);
  for (std::size_t i = 0; i < items.size() && runtime.step(); ++i) {
    if (i != 0) out.add(", ");
    append_repr(runtime, out, items[i]);
  }
  out.add(close);
}

void append_list_repr(Runtime& runtime, TextBuilder& out, const ListData& list) {
  switch (list.flavour) {
    case ListFlavour::kList:
      return append_items(runtime, out, list.items, "[", "]");
    case ListFlavour::kTuple:
    case ListFlavour::kGroup:
      return append_items(runtime, out, list.items, "(", list.items.size() == 1 ? ",)" : ")");
    case ListFlavour::kDictKeys:
      return append_items(runtime, out, list.items, "dict_keys([", "])");
    case ListFlavour::kDictValues:
      return append_items(runtime, out, list.items, "dict_values([", "])");
    case ListFlavour::kDictItems:
      return append_items(runtime, out, list.items, "dict_items([", "])");
    case ListFlavour::kRange:
      out.add(list.step == 1 ? fmt::format("range({}, {})", list.start, list.stop)
                             : fmt::format("range({}, {}, {})", list.start, list.stop, list.step));
      return;
    case ListFlavour::kIterator:
      out.add("<generator object>");
      return;
  }
}

void append_dict_repr(Runtime& runtime, TextBuilder& out, const DictData& dict) {
  out.add("{");
  bool first = true;
  for (const auto& [key, value] : dict.entries) {
    if (!runtime.step()) return;
    if (!first) out.add(", ");
    first = false;
    append_repr(runtime, out, key);
    out.add(": ");
    append_repr(runtime, out, value);
  }
  out.add("}");
}

}  // namespace

std::string string_repr(std::string_view text) {
  const bool has_single = text.find('\'') != std::string_view::npos;
  const bool has_double = text.find('"') != std::string_view::npos;
  const char quote = has_single && !has_double ? '"' : '\'';
  std::string out(1, quote);
  std::size_t position = 0;
  while (position < text.size()) {
    const std::size_t start = position;
    const char32_t c = next_code_point(text, position);
    if (c == static_cast<char32_t>(quote) || c == '\\') {
      out += '\\';
      out += static_cast<char>(c);
    } else if (c == '\n') {
      out += "\\n";
    } else if (c == '\r') {
      out += "\\r";
    } else if (c == '\t') {
      out += "\\t";
    } else if (is_printable(c)) {
      out += text.substr(start, position - start);
    } else if (c <= 0xFF) {
      out += fmt::format("\\x{:02x}", static_cast<std::uint32_t>(c));
    } else if (c <= 0xFFFF) {
      out += fmt::format("\\u{:04x}", static_cast<std::uint32_t>(c));
    } else {
      out += fmt::format("\\U{:08x}", static_cast<std::uint32_t>(c));
    }
  }
  return out + quote;
}

void append_repr(Runtime& runtime, TextBuilder& out, const Value& value) {
  if (!value.is_string()) {
    // An undefined value has the class name as its repr, but prints as nothing.
    if (value.is_undefined()) {
      out.add("Undefined");
    } else {
      append_str(runtime, out, value);
    }
    return;
  }
  if (!runtime.step_bytes(value.text().size())) return;
  const std::string quoted = string_repr(value.text());
  out.add(value.as_string().safe ? fmt::format("Markup({})", quoted) : quoted);
}

void append_str(Runtime& runtime, TextBuilder& out, const Value& value) {
  switch (value.kind()) {
    case ValueKind::kUndefined:
    case ValueKind::kMissing:
      return;
    case ValueKind::kNone:
      out.add("None");
      return;
    case ValueKind::kBool:
      out.add(value.as_bool() ? "True" : "False");
      return;
    case ValueKind::kInt:
      out.add(std::to_string(value.as_int()));
      return;
    case ValueKind::kFloat:
      out.add(float_repr(value.as_double()));
      return;
    case ValueKind::kString:
      if (runtime.step_bytes(value.text().size())) out.add(value.text());
      return;
    case ValueKind::kList:
      return append_list_repr(runtime, out, value.as_list());
    case ValueKind::kDict:
      return append_dict_repr(runtime, out, value.as_dict());
    case ValueKind::kObject:
      out.add(value.as_object().describe(runtime));
      return;
  }
}

std::string to_str(Runtime& runtime, const Value& value) {
  if (value.is_string()) return value.as_string().text;
  TextBuilder out(runtime);
  append_str(runtime, out, value);
  return out.take();
}

}  // namespace motley::jinja
