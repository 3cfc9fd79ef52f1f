// JSON from downloaded files: limits on size, depth and number of values; a repeated key is an
// error. The only file of this module that drives the JSON library.
//
// Thread rule: pure functions; a JsonBuilder belongs to one thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"

namespace motley {

struct TextJsonLimits {
  size_t max_bytes = 64u << 20;
  size_t max_depth = 64;
  size_t max_values = 4'000'000;
};

// Receives parse events and builds a tree. Derived classes may take events for themselves.
class JsonBuilder : public nlohmann::json_sax<nlohmann::json> {
 public:
  explicit JsonBuilder(const TextJsonLimits& limits) : limits_(limits) {}

  bool null() override { return add(nullptr); }
  bool boolean(bool value) override { return add(value); }
  bool number_integer(int64_t value) override { return add(value); }
  bool number_unsigned(uint64_t value) override { return add(value); }
  bool number_float(double value, const std::string& /*text*/) override { return add(value); }
  bool string(std::string& value) override { return add(std::move(value)); }
  bool binary(binary_t& /*value*/) override { return fail("binary values are not JSON"); }
  bool start_object(size_t /*size*/) override { return open(nlohmann::json::object()); }
  bool start_array(size_t /*size*/) override { return open(nlohmann::json::array()); }
  bool key(std::string& name) override;
  bool end_object() override { return close(); }
  bool end_array() override { return close(); }
  bool parse_error(size_t position, const std::string& last_token,
                   const nlohmann::json::exception& error) override;

  nlohmann::json take() { return std::move(root_); }
  const Status& error() const { return error_; }

 protected:
  // Always false, so that handlers can return it.
  bool fail(std::string message);
  bool count_value();
  // Names of the open objects' current keys, outermost first; "" for arrays.
  const std::vector<std::string>& path() const { return path_; }

 private:
  bool add(nlohmann::json value);
  bool open(nlohmann::json container);
  bool close();

  TextJsonLimits limits_;
  nlohmann::json root_;
  std::vector<nlohmann::json*> open_;
  std::vector<std::string> path_;
  size_t values_ = 0;
  Status error_;
};

// Runs `builder` over `text`; its error, or that of the syntax.
Status read_json(std::string_view text, const TextJsonLimits& limits, JsonBuilder& builder);

Result<nlohmann::json> parse_json(std::string_view text, const TextJsonLimits& limits);

// Refuses any key of `object` that is not in `known`, naming it as "where.key".
Status check_known_keys(const nlohmann::json& object, std::string_view where,
                        std::initializer_list<std::string_view> known);

}  // namespace motley
