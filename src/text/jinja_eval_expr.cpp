// Expressions.
#include <fmt/format.h>

#include "text/jinja_builtins.h"
#include "text/jinja_eval.h"
#include "text/jinja_eval_level.h"
#include "text/jinja_ops.h"
#include "text/jinja_print.h"

namespace motley::jinja {

Value Interpreter::evaluate(const Expr& expr, Scope& scope) {
  const EvaluationLevel level(runtime_, depth_, runtime_.limits().max_evaluation_depth,
                              "evaluation is");
  if (!level.ok() || !runtime_.step()) return {};
  runtime_.set_line(expr.line);
  return evaluate_kind(expr, scope);
}

Value Interpreter::evaluate_kind(const Expr& expr, Scope& scope) {
  switch (expr.kind) {
    case ExprKind::kConst:
      return expr.constant;
    case ExprKind::kName:
      return evaluate_name(expr, scope);
    case ExprKind::kTuple:
      return evaluate_sequence(expr, scope, ListFlavour::kTuple);
    case ExprKind::kList:
      return evaluate_sequence(expr, scope, ListFlavour::kList);
    case ExprKind::kDict:
      return evaluate_dict(expr, scope);
    case ExprKind::kGetAttr: {
      const Value object = evaluate(*expr.operands[0], scope);
      return runtime_.failed() ? Value() : get_attribute(runtime_, object, *expr.symbol);
    }
    case ExprKind::kGetItem: {
      const Value object = evaluate(*expr.operands[0], scope);
      const Value key = evaluate(*expr.operands[1], scope);
      return runtime_.failed() ? Value() : get_item(runtime_, object, key);
    }
    case ExprKind::kSlice:
      return evaluate_slice(expr, scope);
    case ExprKind::kCall:
      return evaluate_call(expr, scope, nullptr);
    case ExprKind::kFilter:
      return evaluate_filter(expr, scope);
    case ExprKind::kTest:
      return evaluate_test(expr, scope);
    case ExprKind::kUnary: {
      const Value operand = evaluate(*expr.operands[0], scope);
      return runtime_.failed() ? Value() : unary(runtime_, expr.op, operand);
    }
    case ExprKind::kBinary: {
      const Value left = evaluate(*expr.operands[0], scope);
      const Value right = evaluate(*expr.operands[1], scope);
      return runtime_.failed() ? Value() : binary(runtime_, expr.op, left, right);
    }
    case ExprKind::kConcat:
      return evaluate_concat(expr, scope);
    case ExprKind::kAnd: {
      const Value left = evaluate(*expr.operands[0], scope);
      return truthy(left) ? evaluate(*expr.operands[1], scope) : left;
    }
    case ExprKind::kOr: {
      const Value left = evaluate(*expr.operands[0], scope);
      return truthy(left) ? left : evaluate(*expr.operands[1], scope);
    }
    case ExprKind::kCompare:
      return evaluate_compare(expr, scope);
    case ExprKind::kConditional:
      return evaluate_conditional(expr, scope);
  }
  return {};
}

Value Interpreter::evaluate_name(const Expr& expr, Scope& scope) {
  for (const Scope* at = &scope; at != nullptr; at = at->parent) {
    for (const auto& [symbol, value] : at->variables) {
      if (symbol == expr.symbol) return value;
    }
  }
  const Value* given = context_.as_dict().find(*expr.symbol);
  if (given != nullptr) return *given;
  const Value function = global_function(runtime_, *expr.symbol);
  if (!function.is_undefined()) return function;
  return runtime_.make_undefined(fmt::format("'{}' is undefined", *expr.symbol));
}

Value Interpreter::evaluate_sequence(const Expr& expr, Scope& scope, ListFlavour flavour) {
  std::vector<Value> items;
  for (const ExprPtr& operand : expr.operands) {
    items.push_back(evaluate(*operand, scope));
    if (runtime_.failed()) return {};
  }
  return runtime_.make_list(std::move(items), flavour);
}

Value Interpreter::evaluate_dict(const Expr& expr, Scope& scope) {
  std::vector<std::pair<Value, Value>> entries;
  for (std::size_t i = 0; i + 1 < expr.operands.size(); i += 2) {
    const Value key = evaluate(*expr.operands[i], scope);
    entries.emplace_back(key, evaluate(*expr.operands[i + 1], scope));
    if (runtime_.failed()) return {};
  }
  return runtime_.make_dict(std::move(entries));
}

Value Interpreter::evaluate_slice(const Expr& expr, Scope& scope) {
  const Value object = evaluate(*expr.operands[0], scope);
  Value bounds[3];
  for (std::size_t i = 0; i < 3; ++i) {
    const ExprPtr& bound = expr.operands[i + 1];
    bounds[i] = bound ? evaluate(*bound, scope) : Value::none();
  }
  if (runtime_.failed()) return {};
  return slice(runtime_, object, bounds[0], bounds[1], bounds[2]);
}

CallArguments Interpreter::evaluate_arguments(const Expr& expr, Scope& scope) {
  CallArguments arguments;
  for (std::size_t i = 1; i < expr.operands.size(); ++i) {
    arguments.positional.push_back(evaluate(*expr.operands[i], scope));
  }
  if (expr.spread) {
    for (const Value& item : iterate(runtime_, evaluate(*expr.spread, scope))) {
      arguments.positional.push_back(item);
    }
  }
  for (const auto& [name, value] : expr.named) {
    arguments.named.emplace_back(*name, evaluate(*value, scope));
  }
  if (!expr.spread_named) return arguments;
  const Value spread = evaluate(*expr.spread_named, scope);
  if (!spread.is_dict()) {
    runtime_.fail(fmt::format("'**' needs a dict, not a {}", type_name(spread)));
    return arguments;
  }
  for (const auto& [key, value] : spread.as_dict().entries) {
    bool valid = key.is_string() && runtime_.step();
    for (const auto& [name, given] : expr.named) valid = valid && *name != key.text();
    if (!valid) {
      runtime_.fail("'**' needs text keys that are not given already");
      return arguments;
    }
    arguments.named.emplace_back(key.text(), value);
  }
  return arguments;
}

Value Interpreter::evaluate_call(const Expr& expr, Scope& scope, const Value* caller) {
  const Value callee = evaluate(*expr.operands[0], scope);
  CallArguments arguments = evaluate_arguments(expr, scope);
  if (caller != nullptr) arguments.named.emplace_back("caller", *caller);
  runtime_.set_line(expr.line);
  return runtime_.failed() ? Value() : call(callee, arguments);
}

Value Interpreter::call(const Value& callee, CallArguments& arguments) {
  if (callee.is_undefined()) {
    return runtime_.fail(undefined_message(callee) + ", so it cannot be called");
  }
  if (!callee.is_object() || !callee.as_object().is_callable()) {
    return runtime_.fail(fmt::format("a {} cannot be called", type_name(callee)));
  }
  const EvaluationLevel level(runtime_, call_depth_, runtime_.limits().max_call_depth, "calls are");
  if (!level.ok()) return {};
  const Value result = callee.as_object().call(runtime_, arguments);
  return runtime_.failed() ? Value() : result;
}

Value Interpreter::evaluate_filter(const Expr& expr, Scope& scope) {
  const ExprPtr& subject = expr.operands[0];
  const Value value = subject ? evaluate(*subject, scope) : filter_input_;
  CallArguments arguments = evaluate_arguments(expr, scope);
  if (runtime_.failed()) return {};
  runtime_.set_line(expr.line);
  return call_filter(runtime_, *expr.symbol, value, arguments);
}

Value Interpreter::evaluate_test(const Expr& expr, Scope& scope) {
  const Value value = evaluate(*expr.operands[0], scope);
  CallArguments arguments = evaluate_arguments(expr, scope);
  if (runtime_.failed()) return {};
  runtime_.set_line(expr.line);
  return Value::boolean(call_test(runtime_, *expr.symbol, value, arguments));
}

Value Interpreter::evaluate_concat(const Expr& expr, Scope& scope) {
  TextBuilder text(runtime_);
  for (const ExprPtr& operand : expr.operands) {
    append_str(runtime_, text, evaluate(*operand, scope));
    if (runtime_.failed()) return {};
  }
  return text.finish();
}

Value Interpreter::evaluate_compare(const Expr& expr, Scope& scope) {
  Value left = evaluate(*expr.operands[0], scope);
  for (std::size_t i = 0; i < expr.comparisons.size(); ++i) {
    const Value right = evaluate(*expr.operands[i + 1], scope);
    if (runtime_.failed()) return {};
    if (!compare(runtime_, expr.comparisons[i], left, right)) return Value::boolean(false);
    left = right;
  }
  return Value::boolean(true);
}

Value Interpreter::evaluate_conditional(const Expr& expr, Scope& scope) {
  const Value condition = evaluate(*expr.operands[0], scope);
  if (runtime_.failed()) return {};
  if (truthy(condition)) return evaluate(*expr.operands[1], scope);
  if (expr.operands[2]) return evaluate(*expr.operands[2], scope);
  return runtime_.make_undefined("an inline 'if' without 'else' was false, its value is undefined");
}

}  // namespace motley::jinja
