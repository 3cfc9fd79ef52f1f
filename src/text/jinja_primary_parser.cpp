// Literals, subscripts and calls: the part of ExpressionParser below the operators.
#include <fmt/format.h>

#include <charconv>
#include <utility>

#include "text/jinja_expression_parser.h"
#include "text/jinja_number.h"
#include "text/jinja_unicode.h"

namespace motley::jinja {

std::string_view ExpressionParser::literal(std::string text) {
  StringData& data = tree_.literals.emplace_back();
  data.code_points = count_code_points(text);
  data.text = std::move(text);
  return data.text;
}

ExprPtr ExpressionParser::parse_primary() {
  const Nested nested(*this);
  if (!nested.ok()) return make(ExprKind::kConst, current().line);
  switch (current().kind) {
    case TokenKind::kName:
      return parse_name_or_constant();
    case TokenKind::kString:
      return parse_string();
    case TokenKind::kInteger:
    case TokenKind::kFloat:
      return parse_number();
    default:
      break;
  }
  if (skip_operator("(")) {
    ExprPtr node = parse_tuple(true, true);
    expect_operator(")");
    return node;
  }
  if (at_operator("[")) return parse_list();
  if (at_operator("{")) return parse_dict();
  fail(fmt::format("unexpected {}", describe(current())));
  return make(ExprKind::kConst, current().line);
}

ExprPtr ExpressionParser::parse_name_or_constant() {
  const Token token = next();
  ExprPtr node = make(ExprKind::kConst, token.line);
  if (token.text == "true" || token.text == "True") {
    node->constant = Value::boolean(true);
  } else if (token.text == "false" || token.text == "False") {
    node->constant = Value::boolean(false);
  } else if (token.text == "none" || token.text == "None") {
    node->constant = Value::none();
  } else {
    node->kind = ExprKind::kName;
    node->symbol = symbol(token.text);
    read_name(token.text);
  }
  return node;
}

ExprPtr ExpressionParser::parse_string() {
  ExprPtr node = make(ExprKind::kConst, current().line);
  std::string text;
  while (current().kind == TokenKind::kString) text += next().text;
  literal(std::move(text));
  node->constant = Value::string(&tree_.literals.back());
  return node;
}

ExprPtr ExpressionParser::parse_number() {
  const Token token = next();
  ExprPtr node = make(ExprKind::kConst, token.line);
  if (token.kind == TokenKind::kFloat) {
    node->constant = Value::real(parse_float(token.text).value_or(0.0));
  } else if (const auto value = parse_integer(token.text, 0)) {
    node->constant = Value::integer(*value);
  } else {
    fail_at(token.line, fmt::format("the number {} does not fit 64 bits", token.text));
  }
  return node;
}

ExprPtr ExpressionParser::parse_list() {
  ExprPtr node = make(ExprKind::kList, next().line);
  while (!failed() && !at_operator("]")) {
    node->operands.push_back(parse_expression());
    if (!skip_operator(",")) break;
  }
  expect_operator("]");
  return finish(std::move(node));
}

ExprPtr ExpressionParser::parse_dict() {
  ExprPtr node = make(ExprKind::kDict, next().line);
  while (!failed() && !at_operator("}")) {
    node->operands.push_back(parse_expression());
    expect_operator(":");
    node->operands.push_back(parse_expression());
    if (!skip_operator(",")) break;
  }
  expect_operator("}");
  return finish(std::move(node));
}

ExprPtr ExpressionParser::parse_attribute(ExprPtr object) {
  const int line = next().line;
  if (current().kind == TokenKind::kInteger) {
    ExprPtr index = parse_number();
    return binary(ExprKind::kGetItem, Operator::kNone, line, std::move(object), std::move(index));
  }
  ExprPtr node = make(ExprKind::kGetAttr, line);
  const std::string name = expect_name();
  node->symbol = symbol(name);
  tree_.fields.insert(name);
  node->operands.push_back(std::move(object));
  return finish(std::move(node));
}

ExprPtr ExpressionParser::parse_subscript(ExprPtr object) {
  const int line = next().line;
  std::vector<ExprPtr> keys;
  ExprPtr single = parse_slice_or_index(std::move(object));
  single->line = line;
  if (at_operator(",")) {
    if (single->kind == ExprKind::kSlice) fail("a slice cannot be part of a tuple subscript");
    ExprPtr tuple = make(ExprKind::kTuple, line);
    if (!failed()) tuple->operands.push_back(std::move(single->operands[1]));
    while (!failed() && skip_operator(",")) tuple->operands.push_back(parse_expression());
    if (!failed()) single->operands[1] = finish(std::move(tuple));
  }
  expect_operator("]");
  if (!failed() && single->kind == ExprKind::kGetItem) note_field(*single->operands[1]);
  return finish(std::move(single));
}

ExprPtr ExpressionParser::parse_slice_or_index(ExprPtr object) {
  ExprPtr node = make(ExprKind::kGetItem, current().line);
  node->operands.push_back(std::move(object));
  ExprPtr start;
  if (!at_operator(":")) start = parse_expression();
  if (!at_operator(":")) {
    node->operands.push_back(std::move(start));
    return node;
  }
  node->kind = ExprKind::kSlice;
  node->operands.push_back(std::move(start));
  const auto bound = [this]() -> ExprPtr {
    if (at_operator(":") || at_operator("]") || at_operator(",")) return nullptr;
    return parse_expression();
  };
  next();
  node->operands.push_back(bound());
  node->operands.push_back(skip_operator(":") ? bound() : nullptr);
  return node;
}

ExprPtr ExpressionParser::parse_call(ExprPtr callee) {
  ExprPtr node = make(ExprKind::kCall, current().line);
  const bool is_get = callee->kind == ExprKind::kGetAttr && *callee->symbol == "get";
  node->operands.push_back(std::move(callee));
  parse_arguments(*node);
  if (is_get && node->operands.size() > 1) note_field(*node->operands[1]);
  return finish(std::move(node));
}

void ExpressionParser::parse_arguments(Expr& node) {
  const int line = current().line;
  const auto invalid = [&] { fail_at(line, "these call arguments are in an impossible order"); };
  expect_operator("(");
  while (!failed() && !at_operator(")")) {
    if (skip_operator("*")) {
      if (node.spread || node.spread_named) return invalid();
      node.spread = parse_expression();
    } else if (skip_operator("**")) {
      if (node.spread_named) return invalid();
      node.spread_named = parse_expression();
    } else if (current().kind == TokenKind::kName && look().is(TokenKind::kOperator, "=")) {
      if (node.spread_named) return invalid();
      const Symbol name = symbol(next().text);
      for (const auto& entry : node.named) {
        if (entry.first == name) return fail(fmt::format("argument '{}' is given twice", *name));
      }
      next();
      node.named.emplace_back(name, parse_expression());
    } else {
      if (node.spread || node.spread_named || !node.named.empty()) return invalid();
      node.operands.push_back(parse_expression());
    }
    if (!skip_operator(",")) break;
  }
  expect_operator(")");
}

}  // namespace motley::jinja
