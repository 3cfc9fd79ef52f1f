#include "io/convert/json_text.h"

#include <fmt/format.h>

namespace motley {
namespace {

void append(const JsonValue& value, int depth, std::string* out);

// Members or elements between brackets, one per line.
template <typename Container, typename AppendOne>
void append_list(char open, char close, const Container& items, int depth, std::string* out,
                 AppendOne append_one) {
  *out += open;
  bool first = true;
  for (const auto& item : items) {
    *out += first ? "\n" : ",\n";
    first = false;
    out->append(static_cast<size_t>(depth + 1) * 2, ' ');
    append_one(item);
  }
  if (!first) {
    *out += '\n';
    out->append(static_cast<size_t>(depth) * 2, ' ');
  }
  *out += close;
}

std::string number_text(double value) {
  std::string text = fmt::format("{}", value);
  // Keep it a floating-point number for readers that tell the two apart.
  if (text.find_first_of(".en") == std::string::npos) text += ".0";
  return text;
}

void append(const JsonValue& value, int depth, std::string* out) {
  if (value.is_null()) {
    *out += "null";
  } else if (const auto* boolean = std::get_if<bool>(&value.data)) {
    *out += *boolean ? "true" : "false";
  } else if (const auto* integer = std::get_if<int64_t>(&value.data)) {
    *out += std::to_string(*integer);
  } else if (const auto* number = std::get_if<double>(&value.data)) {
    *out += number_text(*number);
  } else if (const auto* text = std::get_if<std::string>(&value.data)) {
    *out += json_quote(*text);
  } else if (const auto* array = std::get_if<JsonValue::Array>(&value.data)) {
    append_list('[', ']', *array, depth, out,
                [&](const JsonValue& item) { append(item, depth + 1, out); });
  } else {
    append_list('{', '}', std::get<JsonValue::Object>(value.data), depth, out,
                [&](const auto& member) {
                  *out += json_quote(member.first) + ": ";
                  append(member.second, depth + 1, out);
                });
  }
}

}  // namespace

std::string json_text(const JsonValue& value) {
  std::string text;
  append(value, 0, &text);
  return text;
}

}  // namespace motley
