#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "text/chat_template.h"
#include "text/jinja_test_util.h"

namespace motley::jinja {

const std::string_view kSampleContext = R"json({
  "s": "Hello, World", "t": "  padded\ttext\n",
  "u": "Ünï ß ΑΣ 漢字 🙂", "e": "", "n": 7, "m": -3,
  "z": 0, "f": 2.5, "b": true, "c": false, "o": null, "l": [3, 1, 2],
  "k": ["b", "a", "C", "a"], "x": [],
  "d": {"a": 1, "b": "two", "items": [1], "c": null}, "html": "<a href=\"x\">&'</a>",
  "r": [{"name": "Ann", "age": 31, "tags": ["x"]}, {"name": "bob", "age": 25},
        {"name": "Cy", "age": 31, "tags": []}],
  "q": {"x": {"y": [1, {"z": "deep"}]}}, "w": "one two  three\nfour"
})json";

std::string render(std::string_view source, std::string_view json, const JinjaLimits& limits) {
  const Result<ChatTemplate> made = ChatTemplate::parse(source, limits);
  if (!made) return "error: " + made.status().message();
  std::tm now{};
  now.tm_year = 124;
  now.tm_mday = 2;
  now.tm_hour = 3;
  now.tm_min = 4;
  now.tm_sec = 5;
  now.tm_wday = 2;
  now.tm_yday = 1;
  const Result<std::string> output = made.value().render(nlohmann::ordered_json::parse(json), now);
  return output ? *output : "error: " + output.status().message();
}

void expect_expressions(std::span<const ExpressionCase> cases) {
  for (const ExpressionCase& test : cases) {
    const std::string source = "{% set value = " + std::string(test.expression) + " %}{{ value }}";
    const std::string output = render(source, kSampleContext);
    if (test.output == "error") {
      EXPECT_EQ(output.substr(0, 14), "error: line 1:") << test.expression;
    } else {
      EXPECT_EQ(output, test.output) << test.expression;
    }
  }
}

}  // namespace motley::jinja
