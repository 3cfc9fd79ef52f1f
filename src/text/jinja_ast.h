// The parsed template: expressions and statements, nesting bounded by JinjaLimits::max_nesting.
//
// Names and attribute names are pointers into SyntaxTree::symbols, so equal names have equal
// pointers. Literals own their text in SyntaxTree::literals.
//
// Thread rule: immutable after parsing, shared freely.
#pragma once

#include <cstdint>
#include <deque>
#include <memory>
#include <set>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "text/jinja_value.h"

namespace motley::jinja {

using Symbol = const std::string*;

enum class ExprKind : std::uint8_t {
  kConst,
  kName,
  kTuple,
  kList,
  kDict,     // operands: key, value, key, value, ...
  kGetAttr,  // operands: object; symbol: name
  kGetItem,  // operands: object, key
  kSlice,    // operands: object, start, stop, step (each bound may be null)
  kCall,     // operands: callee, then positional arguments
  kFilter,   // operands: value (null in filter blocks), then arguments; symbol: name
  kTest,     // operands: value, then arguments; symbol: name
  kUnary,    // symbol-free; op is kNegate, kPlus or kNot
  kBinary,
  kConcat,
  kAnd,
  kOr,
  kCompare,      // operands: first, second, ...; comparisons between them
  kConditional,  // operands: condition, then, else (may be null)
};

enum class Operator : std::uint8_t {
  kNone,
  kNegate,
  kPlus,
  kNot,
  kAdd,
  kSubtract,
  kMultiply,
  kDivide,
  kFloorDivide,
  kModulo,
  kPower,
  kEqual,
  kNotEqual,
  kLess,
  kLessEqual,
  kGreater,
  kGreaterEqual,
  kIn,
  kNotIn,
};

struct Expr;
using ExprPtr = std::unique_ptr<Expr>;

struct Expr {
  ExprKind kind = ExprKind::kConst;
  Operator op = Operator::kNone;
  int line = 1;
  int depth = 1;
  Symbol symbol = nullptr;
  Value constant;
  std::vector<ExprPtr> operands;
  std::vector<Operator> comparisons;
  // Of calls, filters and tests.
  std::vector<std::pair<Symbol, ExprPtr>> named;
  ExprPtr spread;        // *arguments
  ExprPtr spread_named;  // **arguments
};

enum class StatementKind : std::uint8_t {
  kText,
  kPrint,        // exprs: value
  kIf,           // branches
  kFor,          // target, exprs: iterable, filter (may be null); body, otherwise
  kSet,          // target, exprs: value
  kSetBlock,     // target, exprs: filter chain (may be null); body
  kMacro,        // macro
  kCallBlock,    // exprs: call; macro (the body with its parameters)
  kFilterBlock,  // exprs: filter chain; body
  kWith,         // assignments; body
  kBreak,
  kContinue,
};

struct Statement;
using Block = std::vector<Statement>;

struct Branch {
  ExprPtr condition;  // null: else
  Block body;
};

struct MacroDeclaration {
  Symbol name = nullptr;
  std::vector<Symbol> parameters;
  // Defaults of the last parameters, in order.
  std::vector<ExprPtr> defaults;
  Block body;
  bool uses_caller = false;
  bool uses_varargs = false;
  bool uses_kwargs = false;
};

struct Statement {
  StatementKind kind = StatementKind::kText;
  int line = 1;
  std::string_view text;
  ExprPtr target;  // a name, a tuple of targets, or an attribute of a namespace
  std::vector<ExprPtr> exprs;
  Block body;
  Block otherwise;
  bool has_loop_variable = false;
  std::vector<Branch> branches;
  std::vector<std::pair<ExprPtr, ExprPtr>> assignments;
  std::unique_ptr<MacroDeclaration> macro;
};

struct SyntaxTree {
  Block body;
  std::set<std::string, std::less<>> symbols;
  std::deque<StringData> literals;
  // Names read before anything in the template sets them: what the context must or may hold.
  std::set<std::string, std::less<>> variables;
  // Attribute names, text subscripts, first arguments of get() and left sides of `in`.
  std::set<std::string, std::less<>> fields;
};

}  // namespace motley::jinja
