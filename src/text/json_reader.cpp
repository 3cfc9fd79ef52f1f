#include "text/json_reader.h"

#include <fmt/format.h>

#include <algorithm>

#include "text/utf8.h"

namespace motley {
bool JsonBuilder::fail(std::string message) {
  if (error_.is_ok()) error_ = corrupt(std::move(message));
  return false;
}

bool JsonBuilder::count_value() {
  if (++values_ <= limits_.max_values) return true;
  return fail(fmt::format("more than {} values", limits_.max_values));
}

bool JsonBuilder::add(nlohmann::json value) {
  if (!count_value()) return false;
  if (open_.empty()) {
    root_ = std::move(value);
  } else if (open_.back()->is_array()) {
    open_.back()->push_back(std::move(value));
  } else {
    (*open_.back())[path_.back()] = std::move(value);
  }
  return true;
}

bool JsonBuilder::open(nlohmann::json container) {
  if (open_.size() >= limits_.max_depth) {
    return fail(fmt::format("nested deeper than {} levels", limits_.max_depth));
  }
  if (!add(std::move(container))) return false;
  nlohmann::json* added = &root_;
  if (!open_.empty()) {
    nlohmann::json& parent = *open_.back();
    added = parent.is_array() ? &parent.back() : &parent[path_.back()];
  }
  open_.push_back(added);
  path_.emplace_back();
  return true;
}

bool JsonBuilder::close() {
  open_.pop_back();
  path_.pop_back();
  return true;
}

bool JsonBuilder::key(std::string& name) {
  if (open_.back()->contains(name))
    return fail(fmt::format("key '{}' appears twice", printable_excerpt(name)));
  path_.back() = std::move(name);
  return true;
}

bool JsonBuilder::parse_error(size_t position, const std::string& /*last_token*/,
                              const nlohmann::json::exception& /*error*/) {
  return fail(fmt::format("not valid JSON at byte {}", position));
}

Status read_json(std::string_view text, const TextJsonLimits& limits, JsonBuilder& builder) {
  if (text.size() > limits.max_bytes) {
    return corrupt(
        fmt::format("{} bytes of JSON are over the limit of {}", text.size(), limits.max_bytes));
  }
  try {
    const bool complete = nlohmann::json::sax_parse(text.begin(), text.end(), &builder);
    if (!builder.error().is_ok()) return builder.error();
    return complete ? Status::ok() : corrupt("not valid JSON");
  } catch (const nlohmann::json::exception&) {
    return corrupt("not valid JSON");
  }
}

Result<nlohmann::json> parse_json(std::string_view text, const TextJsonLimits& limits) {
  JsonBuilder builder(limits);
  MOTLEY_RETURN_IF_ERROR(read_json(text, limits, builder));
  return builder.take();
}

Status check_known_keys(const nlohmann::json& object, std::string_view where,
                        std::initializer_list<std::string_view> known) {
  if (!object.is_object()) return corrupt(fmt::format("{} must be an object", where));
  for (const auto& entry : object.items()) {
    if (std::find(known.begin(), known.end(), entry.key()) == known.end()) {
      return unsupported(
          fmt::format("{}.{} is not known to this version", where, printable_excerpt(entry.key())));
    }
  }
  return Status::ok();
}

}  // namespace motley
