// Typed getters of ConfigObject; the parser is in config_json.cpp.
#include <fmt/format.h>

#include <cmath>

#include "spec/config_json.h"

namespace motley {

const JsonValue* JsonValue::find(std::string_view name) const {
  const Object* object = as_object();
  if (object == nullptr) return nullptr;
  for (const auto& [key, value] : *object) {
    if (key == name) return &value;
  }
  return nullptr;
}

const JsonValue* ConfigObject::find(std::string_view key) const {
  const JsonValue* member = value_->find(key);
  return member == nullptr || member->is_null() ? nullptr : member;
}

std::string ConfigObject::place(std::string_view key) const {
  return fmt::format("{}: {}{}", file_, path_, key);
}

Status ConfigObject::error(std::string_view key, std::string_view what) const {
  return invalid_argument(fmt::format("{}: {}", place(key), what));
}

Status ConfigObject::unsupported_value(std::string_view key, std::string_view what) const {
  return unsupported(fmt::format("{}: {}", place(key), what));
}

Result<ConfigObject> ConfigObject::object(std::string_view key) const {
  const JsonValue* member = find(key);
  if (member == nullptr) return error(key, "is missing");
  if (member->as_object() == nullptr) return error(key, "must be an object");
  return ConfigObject(*member, file_, fmt::format("{}{}.", path_, key));
}

Result<int64_t> ConfigObject::integer(std::string_view key, int64_t min, int64_t max) const {
  const JsonValue* member = find(key);
  if (member == nullptr) return error(key, "is missing");
  const auto* value = std::get_if<int64_t>(&member->data);
  if (value == nullptr || *value < min || *value > max) {
    const std::string found = value == nullptr ? "" : fmt::format(", not {}", *value);
    return error(key, fmt::format("must be an integer from {} to {}{}", min, max, found));
  }
  return *value;
}

Result<double> ConfigObject::number(std::string_view key, double min, double max) const {
  const JsonValue* member = find(key);
  if (member == nullptr) return error(key, "is missing");
  double value = std::nan("");
  if (const auto* whole = std::get_if<int64_t>(&member->data)) value = static_cast<double>(*whole);
  if (const auto* real = std::get_if<double>(&member->data)) value = *real;
  if (!(value >= min && value <= max)) {
    return error(key, fmt::format("must be a number from {} to {}", min, max));
  }
  return value;
}

Result<std::string> ConfigObject::text(std::string_view key) const {
  const JsonValue* member = find(key);
  if (member == nullptr) return error(key, "is missing");
  const auto* value = std::get_if<std::string>(&member->data);
  if (value == nullptr) return error(key, "must be a string");
  return *value;
}

Result<int64_t> ConfigObject::integer_or(std::string_view key, int64_t fallback, int64_t min,
                                         int64_t max) const {
  if (!has(key)) return fallback;
  return integer(key, min, max);
}

Result<double> ConfigObject::number_or(std::string_view key, double fallback, double min,
                                       double max) const {
  if (!has(key)) return fallback;
  return number(key, min, max);
}

Result<bool> ConfigObject::boolean_or(std::string_view key, bool fallback) const {
  const JsonValue* member = find(key);
  if (member == nullptr) return fallback;
  const auto* value = std::get_if<bool>(&member->data);
  if (value == nullptr) return error(key, "must be true or false");
  return *value;
}

Result<std::string> ConfigObject::text_or(std::string_view key, std::string_view fallback) const {
  if (!has(key)) return std::string(fallback);
  return text(key);
}

Result<std::vector<std::string>> ConfigObject::texts(std::string_view key) const {
  std::vector<std::string> result;
  const JsonValue* member = find(key);
  if (member == nullptr) return result;
  const auto* items = std::get_if<JsonValue::Array>(&member->data);
  if (items == nullptr) return error(key, "must be a list of strings");
  for (const JsonValue& item : *items) {
    const auto* value = std::get_if<std::string>(&item.data);
    if (value == nullptr) return error(key, "must be a list of strings");
    result.push_back(*value);
  }
  return result;
}

Result<std::vector<int64_t>> ConfigObject::integers(std::string_view key, int64_t min,
                                                    int64_t max) const {
  std::vector<int64_t> result;
  const JsonValue* member = find(key);
  if (member == nullptr) return result;
  const auto* items = std::get_if<JsonValue::Array>(&member->data);
  const size_t count = items == nullptr ? 1 : items->size();
  for (size_t i = 0; i < count; ++i) {
    const JsonValue& item = items == nullptr ? *member : (*items)[i];
    const auto* value = std::get_if<int64_t>(&item.data);
    if (value == nullptr || *value < min || *value > max) {
      return error(key, fmt::format("must be integers from {} to {}", min, max));
    }
    result.push_back(*value);
  }
  return result;
}

}  // namespace motley
