#include "text/chat_template_context.h"

#include <fmt/format.h>

#include <limits>
#include <nlohmann/json.hpp>

#include "text/jinja_unicode.h"

namespace motley::jinja {
namespace {

using Json = nlohmann::ordered_json;

class Reader {
 public:
  explicit Reader(Runtime& runtime) : runtime_(runtime) {}

  Value read(const Json& json, int depth) {
    if (!runtime_.step()) return {};
    switch (json.type()) {
      case Json::value_t::boolean:
        return Value::boolean(json.get<bool>());
      case Json::value_t::number_integer:
        return Value::integer(json.get<std::int64_t>());
      case Json::value_t::number_unsigned:
        return read_unsigned(json.get<std::uint64_t>());
      case Json::value_t::number_float:
        return Value::real(json.get<double>());
      case Json::value_t::string:
        return read_string(json.get_ref<const std::string&>());
      case Json::value_t::array:
        return read_array(json, depth);
      case Json::value_t::object:
        return read_object(json, depth, nullptr);
      default:
        return Value::none();
    }
  }

  // Only the members named in `wanted`, if given.
  Value read_object(const Json& json, int depth, const SyntaxTree* wanted) {
    if (!depth_allowed(depth)) return {};
    std::vector<std::pair<Value, Value>> entries;
    for (const auto& [key, value] : json.items()) {
      if (wanted != nullptr && wanted->symbols.find(key) == wanted->symbols.end()) continue;
      const Value name = read_string(key);
      entries.emplace_back(name, read(value, depth + 1));
      if (runtime_.failed()) return {};
    }
    return runtime_.make_dict(std::move(entries));
  }

 private:
  bool depth_allowed(int depth) {
    if (depth < runtime_.limits().max_nesting) return true;
    runtime_.fail_limit(
        fmt::format("the data is nested more than {} deep", runtime_.limits().max_nesting));
    return false;
  }

  Value read_unsigned(std::uint64_t number) {
    if (number > static_cast<std::uint64_t>(std::numeric_limits<std::int64_t>::max())) {
      return runtime_.fail(fmt::format("the number {} in the data does not fit 64 bits", number));
    }
    return Value::integer(static_cast<std::int64_t>(number));
  }

  Value read_string(const std::string& text) {
    if (!is_valid_utf8(text)) return runtime_.fail("a text in the data is not valid UTF-8");
    return runtime_.make_string(text);
  }

  Value read_array(const Json& json, int depth) {
    if (!depth_allowed(depth)) return {};
    std::vector<Value> items;
    items.reserve(json.size());
    for (const Json& item : json) {
      items.push_back(read(item, depth + 1));
      if (runtime_.failed()) return {};
    }
    return runtime_.make_list(std::move(items));
  }

  Runtime& runtime_;
};

}  // namespace

Value read_context(Runtime& runtime, const nlohmann::ordered_json& context,
                   const SyntaxTree& tree) {
  if (!context.is_object()) return runtime.fail("the template's data must be a JSON object");
  return Reader(runtime).read_object(context, 0, &tree);
}

}  // namespace motley::jinja
