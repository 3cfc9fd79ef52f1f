// The chat template of a model: messages in, prompt text out.
//
// Source of the format: Jinja2 3.1 as released chat templates use it (trim_blocks and lstrip_blocks
// on, loop controls, `tojson` as plain JSON, raise_exception, strftime_now). What is left out is
// refused by name when the template is parsed, never rendered in part: see jinja_parser.h.
//
// Ownership: a ChatTemplate owns its parsed form and is cheap to move.
// Thread rule: immutable; any number of threads may render at once.
// Errors: one line each, "line N: ...", N being the line in the template.
#pragma once

#include <ctime>
#include <memory>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"
#include "text/jinja_limits.h"

namespace motley {

namespace jinja {
struct SyntaxTree;
}  // namespace jinja

class ChatTemplate {
 public:
  static Result<ChatTemplate> parse(std::string_view source, JinjaLimits limits = {});

  ChatTemplate(ChatTemplate&&) noexcept;
  ChatTemplate& operator=(ChatTemplate&&) noexcept;
  ~ChatTemplate();

  // `context` is an object: messages, tools, add_generation_prompt, bos_token, enable_thinking and
  // whatever else the template reads. Member order is kept, so tools print as they were sent.
  // `now` is the time for strftime_now.
  Result<std::string> render(const nlohmann::ordered_json& context, const std::tm& now) const;
  // The same at the present local time.
  Result<std::string> render(const nlohmann::ordered_json& context) const;

  // True when the template reads the name as a variable ("tools", "enable_thinking"), as a field of
  // some value ("reasoning_content", "tool_calls") or as a text key.
  bool refers_to(std::string_view name) const;
  // Names that the template reads and does not set itself, sorted.
  std::vector<std::string> variables() const;
  // Field names and text keys it reads, sorted.
  std::vector<std::string> fields() const;

 private:
  ChatTemplate(std::unique_ptr<const jinja::SyntaxTree> tree, const JinjaLimits& limits);

  std::unique_ptr<const jinja::SyntaxTree> tree_;
  JinjaLimits limits_;
};

}  // namespace motley
