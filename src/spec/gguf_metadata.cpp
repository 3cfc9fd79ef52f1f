#include "spec/gguf_metadata.h"

#include <fmt/format.h>

#include <algorithm>

namespace motley {
namespace {

Status missing(std::string_view key) {
  return not_found(fmt::format("key '{}' is missing", key));
}

Status wrong(std::string_view key, std::string_view what) {
  return invalid_argument(fmt::format("key '{}': {}", key, what));
}

}  // namespace

void GgufMetadata::add(std::string key, GgufValue value) {
  entries_.emplace_back(std::move(key), std::move(value));
}

Status GgufMetadata::sort() {
  std::sort(entries_.begin(), entries_.end(),
            [](const auto& a, const auto& b) { return a.first < b.first; });
  const auto repeated =
      std::adjacent_find(entries_.begin(), entries_.end(),
                         [](const auto& a, const auto& b) { return a.first == b.first; });
  if (repeated == entries_.end()) return Status::ok();
  return corrupt(fmt::format("key '{}' appears twice", repeated->first));
}

const GgufValue* GgufMetadata::find(std::string_view key) const {
  const auto found =
      std::lower_bound(entries_.begin(), entries_.end(), key,
                       [](const auto& entry, std::string_view name) { return entry.first < name; });
  return found == entries_.end() || found->first != key ? nullptr : &found->second;
}

Result<int64_t> GgufMetadata::integer(std::string_view key, int64_t min, int64_t max) const {
  const GgufValue* value = find(key);
  if (value == nullptr) return missing(key);
  int64_t result = 0;
  if (const auto* natural = std::get_if<uint64_t>(value)) {
    result = *natural > uint64_t{INT64_MAX} ? INT64_MAX : static_cast<int64_t>(*natural);
  } else if (const auto* number = std::get_if<int64_t>(value)) {
    result = *number;
  } else {
    return wrong(key, "must be a whole number");
  }
  if (result < min || result > max) {
    return wrong(key, fmt::format("{} is out of range {} to {}", result, min, max));
  }
  return result;
}

Result<int64_t> GgufMetadata::integer_or(std::string_view key, int64_t fallback, int64_t min,
                                         int64_t max) const {
  if (!has(key)) return fallback;
  return integer(key, min, max);
}

Result<double> GgufMetadata::number(std::string_view key) const {
  const GgufValue* value = find(key);
  if (value == nullptr) return missing(key);
  if (const auto* number = std::get_if<double>(value)) return *number;
  if (const auto* natural = std::get_if<uint64_t>(value)) return static_cast<double>(*natural);
  if (const auto* whole = std::get_if<int64_t>(value)) return static_cast<double>(*whole);
  return wrong(key, "must be a number");
}

Result<bool> GgufMetadata::boolean_or(std::string_view key, bool fallback) const {
  const GgufValue* value = find(key);
  if (value == nullptr) return fallback;
  if (const auto* flag = std::get_if<bool>(value)) return *flag;
  return wrong(key, "must be true or false");
}

Result<std::string_view> GgufMetadata::text(std::string_view key) const {
  const GgufValue* value = find(key);
  if (value == nullptr) return missing(key);
  if (const auto* text = std::get_if<std::string>(value)) return std::string_view(*text);
  return wrong(key, "must be a text");
}

Result<const std::vector<std::string>*> GgufMetadata::texts(std::string_view key) const {
  const GgufValue* value = find(key);
  if (value == nullptr) return missing(key);
  if (const auto* list = std::get_if<std::vector<std::string>>(value)) return list;
  return wrong(key, "must be a list of texts");
}

Result<const std::vector<int64_t>*> GgufMetadata::integers(std::string_view key) const {
  const GgufValue* value = find(key);
  if (value == nullptr) return missing(key);
  if (const auto* list = std::get_if<std::vector<int64_t>>(value)) return list;
  return wrong(key, "must be a list of whole numbers");
}

}  // namespace motley
