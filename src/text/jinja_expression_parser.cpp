#include "text/jinja_expression_parser.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <utility>

#include "text/jinja_builtins.h"
#include "text/jinja_error.h"

namespace motley::jinja {
namespace {

Operator comparison_operator(const Token& token) {
  static constexpr std::array<std::pair<std::string_view, Operator>, 6> kOperators = {{
      {"==", Operator::kEqual},
      {"!=", Operator::kNotEqual},
      {"<", Operator::kLess},
      {"<=", Operator::kLessEqual},
      {">", Operator::kGreater},
      {">=", Operator::kGreaterEqual},
  }};
  if (token.kind != TokenKind::kOperator) return Operator::kNone;
  for (const auto& [text, op] : kOperators) {
    if (token.text == text) return op;
  }
  return Operator::kNone;
}

Operator product_operator(const Token& token) {
  if (token.kind != TokenKind::kOperator) return Operator::kNone;
  if (token.text == "*") return Operator::kMultiply;
  if (token.text == "/") return Operator::kDivide;
  if (token.text == "//") return Operator::kFloorDivide;
  if (token.text == "%") return Operator::kModulo;
  return Operator::kNone;
}

}  // namespace

ExpressionParser::Nested::Nested(ExpressionParser& parser) : parser_(parser) {
  ok_ = ++parser.nesting_ <= parser.limits_.max_nesting;
  if (!ok_) {
    parser.fail_at(parser.current().line,
                   fmt::format("nested more than {} deep", parser.limits_.max_nesting),
                   StatusCode::kResourceExhausted);
  }
}

Token ExpressionParser::next() {
  const Token token = tokens_[position_];
  if (position_ + 1 < tokens_.size()) ++position_;
  return token;
}

bool ExpressionParser::skip_operator(std::string_view text) {
  if (!at_operator(text)) return false;
  next();
  return true;
}

bool ExpressionParser::skip_name(std::string_view text) {
  if (!at_name(text)) return false;
  next();
  return true;
}

void ExpressionParser::expect_operator(std::string_view text) {
  if (!skip_operator(text)) fail(fmt::format("expected '{}', got {}", text, describe(current())));
}

std::string ExpressionParser::expect_name() {
  if (current().kind == TokenKind::kName) return next().text;
  fail(fmt::format("expected a name, got {}", describe(current())));
  return {};
}

void ExpressionParser::fail_at(int line, std::string message, StatusCode code) {
  if (status_.is_ok()) status_ = Status(code, error_line(line, message));
  position_ = tokens_.size() - 1;
}

std::string ExpressionParser::describe(const Token& token) {
  switch (token.kind) {
    case TokenKind::kEnd:
      return "the end of the template";
    case TokenKind::kData:
      return "text";
    case TokenKind::kString:
      return "a string";
    default:
      return fmt::format("'{}'", token.text);
  }
}

Symbol ExpressionParser::symbol(std::string_view name) {
  const auto found = tree_.symbols.find(name);
  if (found != tree_.symbols.end()) return &*found;
  return &*tree_.symbols.emplace(name).first;
}

ExprPtr ExpressionParser::make(ExprKind kind, int line) const {
  auto node = std::make_unique<Expr>();
  node->kind = kind;
  node->line = line;
  return node;
}

ExprPtr ExpressionParser::finish(ExprPtr node) {
  int deepest = 0;
  const auto visit = [&deepest](const ExprPtr& child) {
    if (child) deepest = std::max(deepest, child->depth);
  };
  for (const ExprPtr& child : node->operands) visit(child);
  for (const auto& entry : node->named) visit(entry.second);
  visit(node->spread);
  visit(node->spread_named);
  node->depth = deepest + 1;
  if (node->depth > limits_.max_nesting) {
    fail_at(node->line,
            fmt::format("an expression is nested more than {} deep", limits_.max_nesting),
            StatusCode::kResourceExhausted);
  }
  return node;
}

ExprPtr ExpressionParser::binary(ExprKind kind, Operator op, int line, ExprPtr left,
                                 ExprPtr right) {
  ExprPtr node = make(kind, line);
  node->op = op;
  node->operands.push_back(std::move(left));
  node->operands.push_back(std::move(right));
  return finish(std::move(node));
}

void ExpressionParser::read_name(std::string_view name) {
  for (MacroDeclaration* macro : open_macros_) {
    macro->uses_caller |= name == "caller";
    macro->uses_varargs |= name == "varargs";
    macro->uses_kwargs |= name == "kwargs";
  }
  if (bound_.find(name) == bound_.end() && !is_global_name(name)) tree_.variables.emplace(name);
}

void ExpressionParser::bind_target(const Expr& target) {
  if (target.kind == ExprKind::kName) bind_name(*target.symbol);
  for (const ExprPtr& part : target.operands) bind_target(*part);
}

void ExpressionParser::note_field(const Expr& node) {
  if (node.kind == ExprKind::kConst && node.constant.is_string()) {
    tree_.fields.emplace(node.constant.text());
  }
}

ExprPtr ExpressionParser::parse_expression(bool with_conditional) {
  return with_conditional ? parse_conditional() : parse_or();
}

bool ExpressionParser::at_tuple_end(bool in_target) const {
  return current().kind == TokenKind::kVariableEnd || current().kind == TokenKind::kBlockEnd ||
         current().kind == TokenKind::kEnd || at_operator(")") || (in_target && at_name("in"));
}

ExprPtr ExpressionParser::parse_tuple(bool with_conditional, bool in_parentheses) {
  const int line = current().line;
  std::vector<ExprPtr> items;
  bool is_tuple = false;
  while (!failed() && !at_tuple_end(false)) {
    items.push_back(parse_expression(with_conditional));
    if (!skip_operator(",")) break;
    is_tuple = true;
  }
  if (!is_tuple && !items.empty()) return std::move(items.front());
  if (!is_tuple && !in_parentheses) {
    fail(fmt::format("expected an expression, got {}", describe(current())));
  }
  ExprPtr node = make(ExprKind::kTuple, line);
  node->operands = std::move(items);
  return finish(std::move(node));
}

ExprPtr ExpressionParser::target_name() {
  const int line = current().line;
  const std::string name = expect_name();
  static constexpr std::array<std::string_view, 7> kConstants = {"true",  "false", "none", "True",
                                                                 "False", "None",  "loop"};
  for (const std::string_view constant : kConstants) {
    if (name == constant) fail_at(line, fmt::format("'{}' cannot be assigned to", name));
  }
  ExprPtr node = make(ExprKind::kName, line);
  node->symbol = symbol(name);
  return node;
}

ExprPtr ExpressionParser::parse_target(bool with_namespace) {
  const Nested nested(*this);
  const int line = current().line;
  std::vector<ExprPtr> parts;
  bool is_tuple = false;
  while (!failed() && !at_tuple_end(true) && !at_operator("=")) {
    if (skip_operator("(")) {
      parts.push_back(parse_target(with_namespace));
      expect_operator(")");
    } else {
      parts.push_back(target_name());
      if (with_namespace && skip_operator(".")) {
        ExprPtr attribute = make(ExprKind::kGetAttr, line);
        attribute->symbol = symbol(expect_name());
        // The namespace itself is read here.
        read_name(*parts.back()->symbol);
        ExprPtr owner = std::move(parts.back());
        owner->kind = ExprKind::kName;
        attribute->operands.push_back(std::move(owner));
        parts.back() = finish(std::move(attribute));
      }
    }
    if (!skip_operator(",")) break;
    is_tuple = true;
  }
  if (parts.empty()) fail(fmt::format("expected a name to assign, got {}", describe(current())));
  if (!is_tuple && !parts.empty()) return std::move(parts.front());
  ExprPtr node = make(ExprKind::kTuple, line);
  node->operands = std::move(parts);
  return finish(std::move(node));
}

ExprPtr ExpressionParser::parse_conditional() {
  const Nested nested(*this);
  const int line = current().line;
  ExprPtr value = parse_or();
  while (!failed() && skip_name("if")) {
    ExprPtr node = make(ExprKind::kConditional, line);
    node->operands.push_back(parse_or());
    node->operands.push_back(std::move(value));
    node->operands.push_back(skip_name("else") ? parse_conditional() : nullptr);
    value = finish(std::move(node));
  }
  return value;
}

ExprPtr ExpressionParser::parse_or() {
  ExprPtr left = parse_and();
  while (!failed() && at_name("or")) {
    const int line = next().line;
    left = binary(ExprKind::kOr, Operator::kNone, line, std::move(left), parse_and());
  }
  return left;
}

ExprPtr ExpressionParser::parse_and() {
  ExprPtr left = parse_not();
  while (!failed() && at_name("and")) {
    const int line = next().line;
    left = binary(ExprKind::kAnd, Operator::kNone, line, std::move(left), parse_not());
  }
  return left;
}

ExprPtr ExpressionParser::parse_not() {
  if (!at_name("not")) return parse_compare();
  const Nested nested(*this);
  ExprPtr node = make(ExprKind::kUnary, next().line);
  node->op = Operator::kNot;
  node->operands.push_back(nested.ok() ? parse_not() : make(ExprKind::kConst, node->line));
  return finish(std::move(node));
}

ExprPtr ExpressionParser::parse_compare() {
  const int line = current().line;
  ExprPtr first = parse_sum();
  ExprPtr node;
  while (!failed()) {
    Operator op = comparison_operator(current());
    if (op != Operator::kNone) {
      next();
    } else if (skip_name("in")) {
      op = Operator::kIn;
    } else if (at_name("not") && look().is(TokenKind::kName, "in")) {
      next();
      next();
      op = Operator::kNotIn;
    } else {
      break;
    }
    if (!node) {
      node = make(ExprKind::kCompare, line);
      if (op == Operator::kIn || op == Operator::kNotIn) note_field(*first);
      node->operands.push_back(std::move(first));
    }
    node->comparisons.push_back(op);
    node->operands.push_back(parse_sum());
  }
  return node ? finish(std::move(node)) : std::move(first);
}

ExprPtr ExpressionParser::parse_sum() {
  ExprPtr left = parse_concat();
  while (!failed() && (at_operator("+") || at_operator("-"))) {
    const Token token = next();
    const Operator op = token.text == "+" ? Operator::kAdd : Operator::kSubtract;
    left = binary(ExprKind::kBinary, op, token.line, std::move(left), parse_concat());
  }
  return left;
}

ExprPtr ExpressionParser::parse_concat() {
  const int line = current().line;
  ExprPtr first = parse_product();
  if (!at_operator("~")) return first;
  ExprPtr node = make(ExprKind::kConcat, line);
  node->operands.push_back(std::move(first));
  while (!failed() && skip_operator("~")) node->operands.push_back(parse_product());
  return finish(std::move(node));
}

ExprPtr ExpressionParser::parse_product() {
  ExprPtr left = parse_power();
  while (!failed()) {
    const Operator op = product_operator(current());
    if (op == Operator::kNone) break;
    const int line = next().line;
    left = binary(ExprKind::kBinary, op, line, std::move(left), parse_power());
  }
  return left;
}

ExprPtr ExpressionParser::parse_power() {
  ExprPtr left = parse_unary(true);
  while (!failed() && at_operator("**")) {
    const int line = next().line;
    left = binary(ExprKind::kBinary, Operator::kPower, line, std::move(left), parse_unary(true));
  }
  return left;
}

ExprPtr ExpressionParser::parse_unary(bool with_filter) {
  const Nested nested(*this);
  ExprPtr node;
  if (!nested.ok()) return make(ExprKind::kConst, current().line);
  if (at_operator("-") || at_operator("+")) {
    const Token token = next();
    node = make(ExprKind::kUnary, token.line);
    node->op = token.text == "-" ? Operator::kNegate : Operator::kPlus;
    node->operands.push_back(parse_unary(false));
    node = finish(std::move(node));
  } else {
    node = parse_primary();
  }
  node = parse_postfix(std::move(node));
  return with_filter ? parse_filters_and_tests(std::move(node)) : std::move(node);
}

ExprPtr ExpressionParser::parse_postfix(ExprPtr node) {
  while (!failed()) {
    if (at_operator(".")) {
      node = parse_attribute(std::move(node));
    } else if (at_operator("[")) {
      node = parse_subscript(std::move(node));
    } else if (at_operator("(")) {
      node = parse_call(std::move(node));
    } else {
      break;
    }
  }
  return node;
}

ExprPtr ExpressionParser::parse_filters_and_tests(ExprPtr node) {
  while (!failed()) {
    if (at_operator("|")) {
      next();
      node = parse_filter_chain(std::move(node), true);
    } else if (at_name("is")) {
      node = parse_test(std::move(node));
    } else if (at_operator("(")) {
      node = parse_call(std::move(node));
    } else {
      break;
    }
  }
  return node;
}

ExprPtr ExpressionParser::parse_filter_chain(ExprPtr value, bool first) {
  while (!failed() && (first || skip_operator("|"))) {
    first = false;
    ExprPtr node = make(ExprKind::kFilter, current().line);
    const std::string name = expect_name();
    if (!failed() && !is_filter_name(name) && conditional_depth_ == 0) {
      fail_at(node->line, fmt::format("no filter named '{}'", name));
    }
    node->symbol = symbol(name);
    node->operands.push_back(std::move(value));
    if (at_operator("(")) parse_arguments(*node);
    value = finish(std::move(node));
  }
  return value;
}

ExprPtr ExpressionParser::parse_test(ExprPtr value) {
  ExprPtr node = make(ExprKind::kTest, next().line);
  const bool negated = skip_name("not");
  const std::string name = expect_name();
  if (!failed() && !is_test_name(name) && conditional_depth_ == 0) {
    fail_at(node->line, fmt::format("no test named '{}'", name));
  }
  node->symbol = symbol(name);
  node->operands.push_back(std::move(value));
  const TokenKind kind = current().kind;
  const bool operand_follows =
      (kind == TokenKind::kName && !at_name("else") && !at_name("or") && !at_name("and")) ||
      kind == TokenKind::kString || kind == TokenKind::kInteger || kind == TokenKind::kFloat ||
      at_operator("[") || at_operator("{");
  if (at_operator("(")) {
    parse_arguments(*node);
  } else if (operand_follows) {
    if (at_name("is")) fail("tests cannot be chained with 'is'");
    node->operands.push_back(parse_postfix(parse_primary()));
  }
  node = finish(std::move(node));
  if (!negated) return node;
  ExprPtr inverse = make(ExprKind::kUnary, node->line);
  inverse->op = Operator::kNot;
  inverse->operands.push_back(std::move(node));
  return finish(std::move(inverse));
}

}  // namespace motley::jinja
