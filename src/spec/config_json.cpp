#include "spec/config_json.h"

#include <limits>
#include <nlohmann/json.hpp>
#include <set>

#include "base/log.h"

namespace motley {
namespace {

using nlohmann::json;

// Adapts the library's callbacks; `false` stops its parser.
class EventAdapter final : public nlohmann::json_sax<json> {
 public:
  EventAdapter(JsonEvents& events, int max_depth) : events_(events), max_depth_(max_depth) {}

  bool null() override { return take(events_.scalar(std::monostate{})); }
  bool boolean(bool value) override { return take(events_.scalar(value)); }
  bool number_integer(number_integer_t value) override { return take(events_.scalar(value)); }
  bool number_unsigned(number_unsigned_t value) override { return take(events_.scalar(value)); }
  bool number_float(number_float_t value, const string_t&) override {
    return take(events_.scalar(value));
  }
  bool string(string_t& value) override { return take(events_.scalar(std::string_view(value))); }
  bool binary(binary_t&) override { return take(corrupt("binary values are not JSON")); }
  bool key(string_t& name) override { return take(events_.key(name)); }
  bool start_object(size_t) override { return deeper() && take(events_.begin_object()); }
  bool start_array(size_t) override { return deeper() && take(events_.begin_array()); }
  bool end_object() override { return shallower(); }
  bool end_array() override { return shallower(); }
  bool parse_error(size_t position, const std::string&,
                   const nlohmann::detail::exception&) override {
    return take(corrupt("not valid JSON at byte " + std::to_string(position)));
  }

  Status take_status() { return std::move(status_); }

 private:
  bool take(Status status) {
    if (status_.is_ok()) status_ = std::move(status);
    return status_.is_ok();
  }
  bool deeper() {
    if (++depth_ <= max_depth_) return true;
    return take(corrupt("JSON nested deeper than " + std::to_string(max_depth_)));
  }
  bool shallower() {
    --depth_;
    return take(events_.end());
  }

  JsonEvents& events_;
  const int max_depth_;
  int depth_ = 0;
  Status status_;
};

class TreeBuilder final : public JsonEvents {
 public:
  Status begin_object() override { return open(JsonValue{JsonValue::Object{}}); }
  Status begin_array() override { return open(JsonValue{JsonValue::Array{}}); }
  Status end() override {
    JsonValue done = std::move(open_.back().value);
    open_.pop_back();
    return add(std::move(done));
  }
  Status key(std::string_view name) override {
    if (!open_.back().names.emplace(name).second) {
      return corrupt("duplicate name " + json_excerpt(name));
    }
    open_.back().key = name;
    return Status::ok();
  }
  Status scalar(const JsonScalar& value) override {
    return add(std::visit([](const auto& item) { return to_value(item); }, value));
  }

  JsonValue take() { return std::move(root_); }

 private:
  struct Level {
    JsonValue value;
    std::string key;
    std::set<std::string, std::less<>> names;
  };

  static JsonValue to_value(std::monostate) { return {}; }
  static JsonValue to_value(bool value) { return {value}; }
  static JsonValue to_value(int64_t value) { return {value}; }
  static JsonValue to_value(double value) { return {value}; }
  static JsonValue to_value(std::string_view value) { return {std::string(value)}; }
  static JsonValue to_value(uint64_t value) {
    if (value > static_cast<uint64_t>(std::numeric_limits<int64_t>::max())) {
      return {static_cast<double>(value)};
    }
    return {static_cast<int64_t>(value)};
  }

  Status open(JsonValue value) {
    open_.push_back({.value = std::move(value)});
    return Status::ok();
  }
  Status add(JsonValue value) {
    if (open_.empty()) {
      root_ = std::move(value);
      return Status::ok();
    }
    Level& parent = open_.back();
    if (auto* object = std::get_if<JsonValue::Object>(&parent.value.data)) {
      object->push_back({std::move(parent.key), std::move(value)});
    } else {
      std::get<JsonValue::Array>(parent.value.data).push_back(std::move(value));
    }
    return Status::ok();
  }

  std::vector<Level> open_;
  JsonValue root_;
};

}  // namespace

Status parse_json(std::string_view text, const JsonLimits& limits, JsonEvents& events) {
  if (text.size() > limits.max_bytes) {
    return corrupt("JSON of " + std::to_string(text.size()) + " bytes exceeds the limit of " +
                   std::to_string(limits.max_bytes));
  }
  // The library skips a byte order mark; JSON has none.
  if (text.starts_with("\xEF\xBB\xBF")) return corrupt("JSON begins with a byte order mark");
  EventAdapter adapter(events, limits.max_depth);
  try {
    if (!json::sax_parse(text.begin(), text.end(), &adapter)) {
      Status status = adapter.take_status();
      return status.is_ok() ? corrupt("not valid JSON") : status;
    }
  } catch (const std::exception& error) {
    return resource_exhausted(std::string("cannot read JSON: ") + error.what());
  }
  return Status::ok();
}

std::string json_quote(std::string_view text) {
  return json(text).dump(-1, ' ', false, json::error_handler_t::replace);
}

std::string json_excerpt(std::string_view text) {
  const std::string quoted = quote_input(text);
  // What is short enough keeps JSON's own escapes.
  return json_quote(quoted.ends_with("...") ? std::string_view(quoted) : text);
}

Result<ConfigJson> ConfigJson::parse(std::string_view text, std::string file,
                                     const JsonLimits& limits) {
  TreeBuilder builder;
  const Status status = parse_json(text, limits, builder);
  if (!status.is_ok()) return status.with_context(file);
  auto root = std::make_unique<const JsonValue>(builder.take());
  if (root->as_object() == nullptr) return corrupt(file + ": the top level must be an object");
  ConfigJson config;
  config.root_ = std::move(root);
  config.file_ = std::make_unique<const std::string>(std::move(file));
  return config;
}

}  // namespace motley
