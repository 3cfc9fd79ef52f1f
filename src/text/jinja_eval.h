// Runs a parsed template: scopes, statements, expressions, macros.
//
// Scoping follows Jinja2: `if` shares its scope; each turn of a loop, macros, call, filter and set
// blocks and `with` have their own; a macro sees the scope it was defined in as it is when called.
//
// Thread rule: one Interpreter per rendering; the tree is only read.
#pragma once

#include <deque>
#include <string>
#include <utility>
#include <vector>

#include "text/jinja_ast.h"
#include "text/jinja_runtime.h"
#include "text/jinja_value.h"

namespace motley::jinja {

struct Scope {
  Scope* parent = nullptr;
  std::vector<std::pair<Symbol, Value>> variables;
  // A macro refers to it, so it must outlive its block.
  bool captured = false;

  void set(Symbol symbol, const Value& value);
};

class Interpreter {
 public:
  // `context` is a dict; `tree` and `runtime` outlive the interpreter.
  Interpreter(const SyntaxTree& tree, Runtime& runtime, const Value& context);
  Interpreter(const Interpreter&) = delete;
  Interpreter& operator=(const Interpreter&) = delete;

  Result<std::string> render();

  // For the objects in jinja_loop.cpp and jinja_macro.cpp.
  Value evaluate(const Expr& expr, Scope& scope);
  Scope& new_scope(Scope* parent);
  void assign(const Expr& target, const Value& value, Scope& scope);
  // Output of a block as a string.
  std::string capture(const Block& block, Scope& scope);
  Value call(const Value& callee, CallArguments& arguments);
  Runtime& runtime() { return runtime_; }
  // Null when the template never mentions the name.
  Symbol find_symbol(std::string_view name) const;

 private:
  enum class Flow { kNext, kBreak, kContinue };

  Flow run(const Block& block, Scope& scope);
  Flow run_statement(const Statement& statement, Scope& scope);
  Flow run_if(const Statement& statement, Scope& scope);
  Flow run_for(const Statement& statement, Scope& scope);
  Flow run_with(const Statement& statement, Scope& scope);
  void run_set_block(const Statement& statement, Scope& scope);
  void run_filter_block(const Statement& statement, Scope& scope);
  void run_call_block(const Statement& statement, Scope& scope);
  void assign_tuple(const Expr& target, const Value& value, Scope& scope);
  Value make_macro(const MacroDeclaration& declaration, Scope& scope);
  void write(std::string_view text);
  void print(const Value& value);
  // Value of a filter chain whose innermost subject is `input`.
  Value apply_filters(const Expr& chain, const Value& input, Scope& scope);

  Value evaluate_name(const Expr& expr, Scope& scope);
  Value evaluate_sequence(const Expr& expr, Scope& scope, ListFlavour flavour);
  Value evaluate_dict(const Expr& expr, Scope& scope);
  Value evaluate_slice(const Expr& expr, Scope& scope);
  Value evaluate_call(const Expr& expr, Scope& scope, const Value* caller);
  Value evaluate_filter(const Expr& expr, Scope& scope);
  Value evaluate_test(const Expr& expr, Scope& scope);
  Value evaluate_concat(const Expr& expr, Scope& scope);
  Value evaluate_compare(const Expr& expr, Scope& scope);
  Value evaluate_conditional(const Expr& expr, Scope& scope);
  Value evaluate_kind(const Expr& expr, Scope& scope);
  CallArguments evaluate_arguments(const Expr& expr, Scope& scope);

  const SyntaxTree& tree_;
  Runtime& runtime_;
  const Value context_;
  const Symbol loop_symbol_;
  std::deque<Scope> scopes_;
  std::string* output_ = nullptr;
  Value filter_input_;
  int depth_ = 0;
  int call_depth_ = 0;
};

}  // namespace motley::jinja
