// Any bytes as a template, rendered over a context that has all the usual shapes. Must never crash,
// hang, use much memory or let an error go beyond one line.
#include <cstddef>
#include <cstdint>
#include <ctime>
#include <nlohmann/json.hpp>
#include <string_view>

#include "base/check.h"
#include "text/chat_template.h"

namespace {

const nlohmann::ordered_json& context() {
  static const nlohmann::ordered_json value = nlohmann::ordered_json::parse(R"json({
    "messages": [
      {"role": "system", "content": "Be brief."},
      {"role": "user", "content": [{"type": "text", "text": "Ünï 漢字 🙂"}, {"type": "image"}]},
      {"role": "assistant", "content": null, "reasoning_content": "hm", "tool_calls": [
        {"id": "call_1", "type": "function",
         "function": {"name": "f",
                      "arguments": {"a": 1, "b": [1.5, null, true], "c": {"d": "e"}}}}]},
      {"role": "tool", "tool_call_id": "call_1", "content": "{\"ok\": true}"},
      {"role": "assistant", "content": "<think>\nx\n</think>\n\ndone"}
    ],
    "tools": [{"type": "function", "function": {"name": "f", "parameters": {"type": "object"}}}],
    "add_generation_prompt": true, "enable_thinking": false, "bos_token": "<s>", "n": 7, "f": 2.5,
    "s": "a,b,,c", "l": [3, 1, 2], "d": {"a": 1, "b": "two"}, "x": null
  })json");
  return value;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  motley::JinjaLimits limits;
  limits.max_steps = 100'000;
  limits.max_output_bytes = 1 << 16;
  limits.max_string_bytes = 1 << 16;
  limits.max_value_bytes = 16 << 20;
  limits.max_range_items = 1'000;
  const std::string_view source(reinterpret_cast<const char*>(data), size);
  const auto one_line = [](const motley::Status& status) {
    MOTLEY_CHECK(status.message().find('\n') == std::string::npos, "an error has several lines");
  };
  const auto parsed = motley::ChatTemplate::parse(source, limits);
  if (!parsed) {
    one_line(parsed.status());
    return 0;
  }
  const auto output = parsed.value().render(context(), std::tm{});
  if (!output) {
    one_line(output.status());
    return 0;
  }
  MOTLEY_CHECK(output->size() <= limits.max_output_bytes, "the output limit does not hold");
  MOTLEY_CHECK(*output == *parsed.value().render(context(), std::tm{}), "two renderings differ");
  return 0;
}
