// The expression half of the parser; the statement half derives from it.
//
// Errors are sticky: the first one is kept and the token position jumps to the end, so every loop
// over tokens stops.
//
// Thread rule: one parser per template, used by one thread.
#pragma once

#include <memory>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"
#include "text/jinja_ast.h"
#include "text/jinja_lexer.h"
#include "text/jinja_limits.h"

namespace motley::jinja {

class ExpressionParser {
 public:
  ExpressionParser(std::vector<Token> tokens, const JinjaLimits& limits)
      : limits_(limits), tokens_(std::move(tokens)) {}

 protected:
  // One more level of nesting; `ok` is false when it is one too many.
  class Nested {
   public:
    explicit Nested(ExpressionParser& parser);
    ~Nested() { --parser_.nesting_; }
    Nested(const Nested&) = delete;
    Nested& operator=(const Nested&) = delete;
    bool ok() const { return ok_; }

   private:
    ExpressionParser& parser_;
    bool ok_;
  };

  const Token& current() const { return tokens_[position_]; }
  const Token& look() const { return tokens_[std::min(position_ + 1, tokens_.size() - 1)]; }
  Token next();
  bool at_operator(std::string_view text) const { return current().is(TokenKind::kOperator, text); }
  bool at_name(std::string_view text) const { return current().is(TokenKind::kName, text); }
  bool skip_operator(std::string_view text);
  bool skip_name(std::string_view text);
  void expect_operator(std::string_view text);
  std::string expect_name();

  bool failed() const { return !status_.is_ok(); }
  void fail(std::string message) { fail_at(current().line, std::move(message)); }
  void fail_at(int line, std::string message, StatusCode code = StatusCode::kInvalidArgument);
  static std::string describe(const Token& token);

  Symbol symbol(std::string_view name);
  std::string_view literal(std::string text);
  ExprPtr make(ExprKind kind, int line) const;
  // Fixes the node's depth and checks it; call once the operands are in place.
  ExprPtr finish(ExprPtr node);

  ExprPtr parse_expression(bool with_conditional = true);
  // One expression, or a tuple of several without brackets.
  ExprPtr parse_tuple(bool with_conditional = true, bool in_parentheses = false);
  // Names, tuples of names, or (`with_namespace`) one attribute of a name; not yet bound.
  ExprPtr parse_target(bool with_namespace);
  // `| name(...)` any number of times; `first` starts with the name itself.
  ExprPtr parse_filter_chain(ExprPtr value, bool first);

  void read_name(std::string_view name);
  // Everything below a target counts as set from here on.
  void bind_target(const Expr& target);
  void bind_name(std::string_view name) { bound_.emplace(name); }

  const JinjaLimits limits_;
  SyntaxTree tree_;
  Status status_;
  // Macro bodies being parsed, innermost last: they learn which special names they use.
  std::vector<MacroDeclaration*> open_macros_;
  // Inside `if` an unknown filter is an error only when reached, as in Jinja2.
  int conditional_depth_ = 0;

 private:
  friend class Nested;

  bool at_tuple_end(bool in_target) const;
  ExprPtr parse_conditional();
  ExprPtr parse_or();
  ExprPtr parse_and();
  ExprPtr parse_not();
  ExprPtr parse_compare();
  ExprPtr parse_sum();
  ExprPtr parse_concat();
  ExprPtr parse_product();
  ExprPtr parse_power();
  ExprPtr parse_unary(bool with_filter);
  ExprPtr parse_primary();
  ExprPtr parse_name_or_constant();
  ExprPtr parse_number();
  ExprPtr parse_string();
  ExprPtr parse_list();
  ExprPtr parse_dict();
  ExprPtr parse_postfix(ExprPtr node);
  ExprPtr parse_filters_and_tests(ExprPtr node);
  ExprPtr parse_attribute(ExprPtr node);
  ExprPtr parse_subscript(ExprPtr node);
  ExprPtr parse_slice_or_index(ExprPtr object);
  ExprPtr parse_call(ExprPtr callee);
  ExprPtr parse_test(ExprPtr value);
  void parse_arguments(Expr& node);
  ExprPtr binary(ExprKind kind, Operator op, int line, ExprPtr left, ExprPtr right);
  ExprPtr target_name();
  void note_field(const Expr& node);

  std::vector<Token> tokens_;
  std::size_t position_ = 0;
  int nesting_ = 0;
  std::set<std::string, std::less<>> bound_;
};

}  // namespace motley::jinja
