// Statements.
#include "text/jinja_eval.h"

#include <fmt/format.h>

#include <memory>
#include <utility>

#include "text/jinja_eval_level.h"
#include "text/jinja_loop.h"
#include "text/jinja_macro.h"
#include "text/jinja_objects.h"
#include "text/jinja_ops.h"
#include "text/jinja_print.h"

namespace motley::jinja {

void Scope::set(Symbol symbol, const Value& value) {
  for (auto& [known, stored] : variables) {
    if (known == symbol) {
      stored = value;
      return;
    }
  }
  variables.emplace_back(symbol, value);
}

Interpreter::Interpreter(const SyntaxTree& tree, Runtime& runtime, const Value& context)
    : tree_(tree), runtime_(runtime), context_(context), loop_symbol_(find_symbol("loop")) {}

Symbol Interpreter::find_symbol(std::string_view name) const {
  const auto found = tree_.symbols.find(name);
  return found == tree_.symbols.end() ? nullptr : &*found;
}

Scope& Interpreter::new_scope(Scope* parent) {
  // A scope is about as large as eight values.
  runtime_.reserve_items(8);
  Scope& scope = scopes_.emplace_back();
  scope.parent = parent;
  return scope;
}

Result<std::string> Interpreter::render() {
  std::string output;
  output_ = &output;
  run(tree_.body, new_scope(nullptr));
  if (runtime_.failed()) return runtime_.status();
  return output;
}

void Interpreter::write(std::string_view text) {
  const std::size_t limit = runtime_.limits().max_output_bytes;
  if (!runtime_.step_bytes(text.size())) return;
  if (text.size() > limit - output_->size()) {
    runtime_.fail_limit(fmt::format("the output is over the limit of {} bytes", limit));
    return;
  }
  *output_ += text;
}

void Interpreter::print(const Value& value) {
  if (value.is_string()) return write(value.text());
  TextBuilder text(runtime_);
  append_str(runtime_, text, value);
  write(text.take());
}

std::string Interpreter::capture(const Block& block, Scope& scope) {
  std::string captured;
  std::string* outer = std::exchange(output_, &captured);
  run(block, scope);
  output_ = outer;
  return captured;
}

Interpreter::Flow Interpreter::run(const Block& block, Scope& scope) {
  const EvaluationLevel level(runtime_, depth_, runtime_.limits().max_evaluation_depth,
                              "evaluation is");
  if (!level.ok()) return Flow::kNext;
  for (const Statement& statement : block) {
    runtime_.set_line(statement.line);
    if (!runtime_.step()) break;
    const Flow flow = run_statement(statement, scope);
    if (flow != Flow::kNext) return flow;
  }
  return Flow::kNext;
}

Interpreter::Flow Interpreter::run_statement(const Statement& statement, Scope& scope) {
  switch (statement.kind) {
    case StatementKind::kText:
      write(statement.text);
      break;
    case StatementKind::kPrint:
      print(evaluate(*statement.exprs[0], scope));
      break;
    case StatementKind::kIf:
      return run_if(statement, scope);
    case StatementKind::kFor:
      return run_for(statement, scope);
    case StatementKind::kWith:
      return run_with(statement, scope);
    case StatementKind::kSet:
      assign(*statement.target, evaluate(*statement.exprs[0], scope), scope);
      break;
    case StatementKind::kSetBlock:
      run_set_block(statement, scope);
      break;
    case StatementKind::kFilterBlock:
      run_filter_block(statement, scope);
      break;
    case StatementKind::kMacro:
      scope.set(statement.macro->name, make_macro(*statement.macro, scope));
      break;
    case StatementKind::kCallBlock:
      run_call_block(statement, scope);
      break;
    case StatementKind::kBreak:
      return Flow::kBreak;
    case StatementKind::kContinue:
      return Flow::kContinue;
  }
  return Flow::kNext;
}

Interpreter::Flow Interpreter::run_if(const Statement& statement, Scope& scope) {
  for (const Branch& branch : statement.branches) {
    if (branch.condition == nullptr || truthy(evaluate(*branch.condition, scope))) {
      return run(branch.body, scope);
    }
    if (runtime_.failed()) break;
  }
  return Flow::kNext;
}

Interpreter::Flow Interpreter::run_for(const Statement& statement, Scope& scope) {
  const Value iterable = evaluate(*statement.exprs[0], scope);
  auto made = std::make_unique<LoopObject>(*this, iterate(runtime_, iterable), *statement.target,
                                           statement.exprs[1].get(), scope);
  LoopObject& loop = *made;
  const Value loop_value = runtime_.adopt(std::move(made));
  if (runtime_.failed()) return Flow::kNext;
  Scope* inner = &new_scope(&scope);
  // As in Jinja2, `else` runs unless one turn has reached its end; break and continue do not.
  bool any_completed = false;
  while (loop.advance()) {
    if (inner->captured) inner = &new_scope(&scope);
    inner->variables.clear();
    if (loop_symbol_ != nullptr) inner->set(loop_symbol_, loop_value);
    assign(*statement.target, loop.current(), *inner);
    const Flow flow = run(statement.body, *inner);
    if (flow == Flow::kBreak || runtime_.failed()) break;
    any_completed |= flow == Flow::kNext;
  }
  if (!any_completed && !statement.otherwise.empty() && !runtime_.failed()) {
    return run(statement.otherwise, new_scope(&scope));
  }
  return Flow::kNext;
}

Interpreter::Flow Interpreter::run_with(const Statement& statement, Scope& scope) {
  Scope& inner = new_scope(&scope);
  // All values are computed outside before any name is set.
  std::vector<Value> values;
  for (const auto& assignment : statement.assignments) {
    values.push_back(evaluate(*assignment.second, scope));
  }
  for (std::size_t i = 0; i < values.size(); ++i) {
    assign(*statement.assignments[i].first, values[i], inner);
  }
  return run(statement.body, inner);
}

Value Interpreter::apply_filters(const Expr& chain, const Value& input, Scope& scope) {
  const Value outer = std::exchange(filter_input_, input);
  const Value result = evaluate(chain, scope);
  filter_input_ = outer;
  return result;
}

void Interpreter::run_set_block(const Statement& statement, Scope& scope) {
  Value value = runtime_.make_string(capture(statement.body, new_scope(&scope)));
  if (statement.exprs[0] != nullptr) value = apply_filters(*statement.exprs[0], value, scope);
  assign(*statement.target, value, scope);
}

void Interpreter::run_filter_block(const Statement& statement, Scope& scope) {
  const Value text = runtime_.make_string(capture(statement.body, new_scope(&scope)));
  print(apply_filters(*statement.exprs[0], text, scope));
}

Value Interpreter::make_macro(const MacroDeclaration& declaration, Scope& scope) {
  for (Scope* outer = &scope; outer != nullptr; outer = outer->parent) outer->captured = true;
  return runtime_.adopt(std::make_unique<MacroObject>(*this, declaration, scope));
}

void Interpreter::run_call_block(const Statement& statement, Scope& scope) {
  const Value caller = make_macro(*statement.macro, scope);
  print(evaluate_call(*statement.exprs[0], scope, &caller));
}

void Interpreter::assign(const Expr& target, const Value& value, Scope& scope) {
  if (runtime_.failed()) return;
  if (target.kind == ExprKind::kName) return scope.set(target.symbol, value);
  if (target.kind == ExprKind::kTuple) return assign_tuple(target, value, scope);
  const Value owner = evaluate(*target.operands[0], scope);
  auto* space = owner.is_object() ? dynamic_cast<NamespaceObject*>(&owner.as_object()) : nullptr;
  if (space == nullptr) {
    runtime_.fail(fmt::format("'{}' is not a namespace, so its '{}' cannot be set",
                              *target.operands[0]->symbol, *target.symbol));
    return;
  }
  space->set(*target.symbol, value);
}

void Interpreter::assign_tuple(const Expr& target, const Value& value, Scope& scope) {
  const std::vector<Value> parts = iterate(runtime_, value);
  if (runtime_.failed()) return;
  if (value.is_undefined() || parts.size() != target.operands.size()) {
    runtime_.fail(
        fmt::format("{} names cannot take {} values", target.operands.size(), parts.size()));
    return;
  }
  for (std::size_t i = 0; i < parts.size(); ++i) assign(*target.operands[i], parts[i], scope);
}

}  // namespace motley::jinja
