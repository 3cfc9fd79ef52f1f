#include "text/chat_template.h"

#include <nlohmann/json.hpp>
#include <utility>

#include "text/chat_template_context.h"
#include "text/jinja_ast.h"
#include "text/jinja_eval.h"
#include "text/jinja_parser.h"
#include "text/jinja_runtime.h"

namespace motley {

ChatTemplate::ChatTemplate(std::unique_ptr<const jinja::SyntaxTree> tree, const JinjaLimits& limits)
    : tree_(std::move(tree)), limits_(limits) {}
ChatTemplate::ChatTemplate(ChatTemplate&&) noexcept = default;
ChatTemplate& ChatTemplate::operator=(ChatTemplate&&) noexcept = default;
ChatTemplate::~ChatTemplate() = default;

Result<ChatTemplate> ChatTemplate::parse(std::string_view source, JinjaLimits limits) {
  MOTLEY_ASSIGN_OR_RETURN(jinja::SyntaxTree tree, jinja::parse_template(source, limits));
  return ChatTemplate(std::make_unique<const jinja::SyntaxTree>(std::move(tree)), limits);
}

Result<std::string> ChatTemplate::render(const nlohmann::ordered_json& context,
                                         const std::tm& now) const {
  jinja::Runtime runtime(limits_, now);
  const jinja::Value values = jinja::read_context(runtime, context, *tree_);
  if (runtime.failed()) return runtime.status();
  return jinja::Interpreter(*tree_, runtime, values).render();
}

Result<std::string> ChatTemplate::render(const nlohmann::ordered_json& context) const {
  const std::time_t seconds = std::time(nullptr);
  std::tm now{};
  localtime_r(&seconds, &now);
  return render(context, now);
}

bool ChatTemplate::refers_to(std::string_view name) const {
  return tree_->variables.find(name) != tree_->variables.end() ||
         tree_->fields.find(name) != tree_->fields.end();
}

std::vector<std::string> ChatTemplate::variables() const {
  return {tree_->variables.begin(), tree_->variables.end()};
}

std::vector<std::string> ChatTemplate::fields() const {
  return {tree_->fields.begin(), tree_->fields.end()};
}

}  // namespace motley
