// Renders templates for the differential test: one JSON request per input line, {"template": text,
// "context": {...}}, one JSON answer per output line, {"output": text} or {"error": text}.
#include <ctime>
#include <iostream>
#include <map>
#include <nlohmann/json.hpp>
#include <string>

#include "text/chat_template.h"

namespace {

using Json = nlohmann::ordered_json;

// A fixed moment, the same for every engine: Tuesday 2 January 2024, 03:04:05.
std::tm fixed_time() {
  std::tm now{};
  now.tm_year = 124;
  now.tm_mon = 0;
  now.tm_mday = 2;
  now.tm_hour = 3;
  now.tm_min = 4;
  now.tm_sec = 5;
  now.tm_wday = 2;
  now.tm_yday = 1;
  return now;
}

Json failure(const motley::Status& status) {
  return Json{{"error", status.message()}};
}

class Probe {
 public:
  Json answer(const Json& request) {
    const std::string source = request.at("template").get<std::string>();
    auto known = parsed_.find(source);
    if (known == parsed_.end()) {
      motley::Result<motley::ChatTemplate> made = motley::ChatTemplate::parse(source);
      if (!made) return failure(made.status());
      known = parsed_.emplace(source, std::move(made).value()).first;
    }
    const motley::Result<std::string> output =
        known->second.render(request.at("context"), fixed_time());
    if (!output) return failure(output.status());
    return Json{{"output", *output}};
  }

 private:
  std::map<std::string, motley::ChatTemplate> parsed_;
};

}  // namespace

int main() {
  Probe probe;
  std::string line;
  while (std::getline(std::cin, line)) {
    const Json request = Json::parse(line, nullptr, false);
    if (request.is_discarded()) {
      std::cerr << "template_probe: a line is not JSON\n";
      return 1;
    }
    std::cout << probe.answer(request).dump(-1, ' ', false, Json::error_handler_t::replace) << "\n";
  }
  return 0;
}
