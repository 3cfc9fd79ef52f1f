// Strict JSON: the one wrapper of the JSON library below text/.
//
// parse_json() hands out events, so a caller can put its own limits on what it accepts and see
// duplicate names. ConfigJson reads a whole (small) file into a tree with typed, range-checked
// getters whose errors name the file and the key. Input is hostile: size, depth and UTF-8 are
// checked, duplicate names are refused, nothing throws.
// Thread rule: values; share by const reference. A ConfigObject must not outlive its ConfigJson.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

#include "base/status.h"

namespace motley {

struct JsonLimits {
  size_t max_bytes = size_t{16} << 20;
  int max_depth = 32;
};

// null, boolean, natural number, negative integer, any other number, text.
using JsonScalar = std::variant<std::monostate, bool, uint64_t, int64_t, double, std::string_view>;

class JsonEvents {
 public:
  virtual ~JsonEvents() = default;
  virtual Status begin_object() = 0;
  virtual Status begin_array() = 0;
  virtual Status end() = 0;  // of the innermost object or array
  virtual Status key(std::string_view name) = 0;
  virtual Status scalar(const JsonScalar& value) = 0;
};

// kCorrupt with the byte position for a syntax error, else the first error of `events`.
Status parse_json(std::string_view text, const JsonLimits& limits, JsonEvents& events);

// `text` as a JSON string with its quotes; invalid UTF-8 becomes U+FFFD.
std::string json_quote(std::string_view text);
// The same for errors: of a long text its beginning (quote_input of base/log.h).
std::string json_excerpt(std::string_view text);

struct JsonMember;

struct JsonValue {
  using Array = std::vector<JsonValue>;
  using Object = std::vector<JsonMember>;  // in file order, unique names
  std::variant<std::monostate, bool, int64_t, double, std::string, Array, Object> data;

  bool is_null() const { return std::holds_alternative<std::monostate>(data); }
  const Object* as_object() const { return std::get_if<Object>(&data); }
  // nullptr when this is no object or has no such member.
  const JsonValue* find(std::string_view name) const;
  friend bool operator==(const JsonValue&, const JsonValue&);
};

// A class of its own: a std::pair would have to be complete inside JsonValue.
struct JsonMember {
  std::string first;
  JsonValue second;
  friend bool operator==(const JsonMember&, const JsonMember&) = default;
};

inline bool operator==(const JsonValue& a, const JsonValue& b) {
  return a.data == b.data;
}

// An object of a configuration file. A member that is null counts as absent.
class ConfigObject {
 public:
  ConfigObject(const JsonValue& value, std::string_view file, std::string path)
      : value_(&value), file_(file), path_(std::move(path)) {}

  const JsonValue& value() const { return *value_; }
  bool has(std::string_view key) const { return find(key) != nullptr; }

  // Required members: kInvalidArgument when absent, of another type or out of [min, max].
  Result<ConfigObject> object(std::string_view key) const;
  Result<int64_t> integer(std::string_view key, int64_t min, int64_t max) const;
  Result<double> number(std::string_view key, double min, double max) const;
  Result<std::string> text(std::string_view key) const;

  // The same with a value for an absent member.
  Result<int64_t> integer_or(std::string_view key, int64_t fallback, int64_t min,
                             int64_t max) const;
  Result<double> number_or(std::string_view key, double fallback, double min, double max) const;
  Result<bool> boolean_or(std::string_view key, bool fallback) const;
  Result<std::string> text_or(std::string_view key, std::string_view fallback) const;

  // Lists; empty when absent. integers() also takes a single integer.
  Result<std::vector<std::string>> texts(std::string_view key) const;
  Result<std::vector<int64_t>> integers(std::string_view key, int64_t min, int64_t max) const;

  // "FILE: path.key: what", for checks that span members.
  Status error(std::string_view key, std::string_view what) const;
  Status unsupported_value(std::string_view key, std::string_view what) const;

 private:
  const JsonValue* find(std::string_view key) const;
  std::string place(std::string_view key) const;

  const JsonValue* value_;
  std::string_view file_;
  std::string path_;  // "" or "text_config."
};

class ConfigJson {
 public:
  // `file` names the text in errors. The top level must be an object.
  static Result<ConfigJson> parse(std::string_view text, std::string file,
                                  const JsonLimits& limits = {});

  ConfigObject root() const { return {*root_, *file_, ""}; }
  const std::string& file() const { return *file_; }

 private:
  ConfigJson() = default;
  // On the heap so that a ConfigObject stays valid when the ConfigJson moves.
  std::unique_ptr<const JsonValue> root_;
  std::unique_ptr<const std::string> file_;
};

}  // namespace motley
