#include "cli/json_text.h"

#include <fmt/format.h>

namespace motley {

Result<nlohmann::ordered_json> parse_json_text(std::string_view text, std::string_view name) {
  try {
    return nlohmann::ordered_json::parse(text.begin(), text.end());
  } catch (const nlohmann::json::parse_error& error) {
    return corrupt(fmt::format("{}: not valid JSON at byte {}", name, error.byte));
  } catch (const nlohmann::json::exception&) {
    return corrupt(fmt::format("{}: not valid JSON", name));
  }
}

std::string dump_json(const nlohmann::ordered_json& value) {
  return value.dump(2, ' ', false, nlohmann::ordered_json::error_handler_t::replace) + "\n";
}

}  // namespace motley
