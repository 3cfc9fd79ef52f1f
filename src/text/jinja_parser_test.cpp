#include "text/jinja_parser.h"

#include <gtest/gtest.h>

namespace motley::jinja {
namespace {

std::string error_of(std::string_view source) {
  const Result<SyntaxTree> tree = parse_template(source, {});
  return tree ? "none" : tree.status().message();
}

// The tree of one expression as text with all brackets, to show what binds how.
std::string show(const Expr& expr) {
  static constexpr std::string_view kSigns[] = {"",   "-",  "+",  "not ", "+",       "-",  "*",
                                                "/",  "//", "%",  "**",   "==",      "!=", "<",
                                                "<=", ">",  ">=", " in ", " not in "};
  const auto sign = [](Operator op) { return std::string(kSigns[static_cast<std::size_t>(op)]); };
  const auto operand = [&](std::size_t i) { return show(*expr.operands[i]); };
  const auto rest = [&](std::size_t first) {
    std::string out;
    for (std::size_t i = first; i < expr.operands.size(); ++i) {
      out += (i > first ? "," : "") + operand(i);
    }
    for (const auto& [name, value] : expr.named) out += "," + *name + "=" + show(*value);
    return out;
  };
  switch (expr.kind) {
    case ExprKind::kConst:
      if (expr.constant.is_string()) return "'" + std::string(expr.constant.text()) + "'";
      if (expr.constant.is(ValueKind::kInt)) return std::to_string(expr.constant.as_int());
      return std::string(type_name(expr.constant));
    case ExprKind::kName:
      return *expr.symbol;
    case ExprKind::kTuple:
      return "tuple(" + rest(0) + ")";
    case ExprKind::kList:
      return "[" + rest(0) + "]";
    case ExprKind::kDict:
      return "{" + rest(0) + "}";
    case ExprKind::kGetAttr:
      return operand(0) + "." + *expr.symbol;
    case ExprKind::kGetItem:
      return operand(0) + "[" + operand(1) + "]";
    case ExprKind::kSlice:
      return operand(0) + "[slice]";
    case ExprKind::kCall:
      return operand(0) + "(" + rest(1) + ")";
    case ExprKind::kFilter:
      return "(" + operand(0) + "|" + *expr.symbol + "(" + rest(1) + "))";
    case ExprKind::kTest:
      return "(" + operand(0) + " is " + *expr.symbol + "(" + rest(1) + "))";
    case ExprKind::kUnary:
      return "(" + sign(expr.op) + operand(0) + ")";
    case ExprKind::kBinary:
      return "(" + operand(0) + sign(expr.op) + operand(1) + ")";
    case ExprKind::kConcat: {
      std::string out = "(" + operand(0);
      for (std::size_t i = 1; i < expr.operands.size(); ++i) out += "~" + operand(i);
      return out + ")";
    }
    case ExprKind::kAnd:
      return "(" + operand(0) + " and " + operand(1) + ")";
    case ExprKind::kOr:
      return "(" + operand(0) + " or " + operand(1) + ")";
    case ExprKind::kCompare: {
      std::string out = "(" + operand(0);
      for (std::size_t i = 0; i < expr.comparisons.size(); ++i) {
        out += sign(expr.comparisons[i]) + operand(i + 1);
      }
      return out + ")";
    }
    case ExprKind::kConditional:
      return "(" + operand(1) + " if " + operand(0) + " else " +
             (expr.operands[2] ? operand(2) : "nothing") + ")";
  }
  return "?";
}

std::string tree_of(std::string_view expression) {
  const std::string source = "{{ " + std::string(expression) + " }}";
  const Result<SyntaxTree> tree = parse_template(source, {});
  if (!tree) return tree.status().message();
  return show(*tree.value().body[0].exprs[0]);
}

TEST(JinjaParser, BindsAsJinja2) {
  EXPECT_EQ(tree_of("1 + 2 * 3"), "(1+(2*3))");
  EXPECT_EQ(tree_of("1 - 2 - 3"), "((1-2)-3)");
  EXPECT_EQ(tree_of("a ~ b + c ~ d"), "((a~b)+(c~d))");
  EXPECT_EQ(tree_of("a * b ~ c"), "((a*b)~c)");
  EXPECT_EQ(tree_of("2 ** 3 ** 2"), "((2**3)**2)");
  EXPECT_EQ(tree_of("-a ** 2"), "((-a)**2)");
  EXPECT_EQ(tree_of("-a.b"), "(-a.b)");
  EXPECT_EQ(tree_of("-a|abs"), "((-a)|abs())");
  EXPECT_EQ(tree_of("a + b|abs"), "(a+(b|abs()))");
  EXPECT_EQ(tree_of("a|first.b"), "line 1: expected '}}', got '.'");
  EXPECT_EQ(tree_of("a|map('x')|list"), "((a|map('x'))|list())");
  EXPECT_EQ(tree_of("a.b('x')[1](c=2)"), "a.b('x')[1](,c=2)");
  EXPECT_EQ(tree_of("not a == b"), "(not (a==b))");
  EXPECT_EQ(tree_of("not a in b"), "(not (a in b))");
  EXPECT_EQ(tree_of("a not in b"), "(a not in b)");
  EXPECT_EQ(tree_of("a or b and not c"), "(a or (b and (not c)))");
  EXPECT_EQ(tree_of("a < b == c"), "(a<b==c)");
  EXPECT_EQ(tree_of("a if b else c if d else e"), "(a if b else (c if d else e))");
  EXPECT_EQ(tree_of("a if b"), "(a if b else nothing)");
  EXPECT_EQ(tree_of("a is defined and b is not none"),
            "((a is defined()) and (not (b is none())))");
  EXPECT_EQ(tree_of("a is divisibleby 3 + 1"), "((a is divisibleby(3))+1)");
  EXPECT_EQ(tree_of("a is in b.c"), "(a is in(b.c))");
  EXPECT_EQ(tree_of("a is in [1] or b"), "((a is in([1])) or b)");
  EXPECT_EQ(tree_of("a == b is defined"), "(a==(b is defined()))");
}

TEST(JinjaParser, Literals) {
  EXPECT_EQ(tree_of("'a' \"b\""), "'ab'");
  EXPECT_EQ(tree_of("[1, 2,]"), "[1,2]");
  EXPECT_EQ(tree_of("{'a': 1, b: 2,}"), "{'a',1,b,2}");
  EXPECT_EQ(tree_of("(1)"), "1");
  EXPECT_EQ(tree_of("(1,)"), "tuple(1)");
  EXPECT_EQ(tree_of("()"), "tuple()");
  EXPECT_EQ(tree_of("1, 2"), "tuple(1,2)");
  EXPECT_EQ(tree_of("True"), "bool");
  EXPECT_EQ(tree_of("None"), "none");
  EXPECT_EQ(tree_of("0x10 + 1_0"), "(16+10)");
  EXPECT_EQ(tree_of("a[1, 2]"), "a[tuple(1,2)]");
  EXPECT_EQ(tree_of("a[1:2]"), "a[slice]");
  EXPECT_EQ(tree_of("a.0"), "a[0]");
  EXPECT_EQ(tree_of("99999999999999999999"),
            "line 1: the number 99999999999999999999 does not fit 64 bits");
}

TEST(JinjaParser, NamesWhatIsWrong) {
  EXPECT_EQ(error_of("{{ 1 + }}"), "line 1: unexpected '}}'");
  EXPECT_EQ(error_of("{{ a b }}"), "line 1: expected '}}', got 'b'");
  EXPECT_EQ(error_of("\n{{ f(a=1, 2) }}"),
            "line 2: these call arguments are in an impossible order");
  EXPECT_EQ(error_of("{{ f(a=1, a=2) }}"), "line 1: argument 'a' is given twice");
  EXPECT_EQ(error_of("{{ f(**a, *b) }}"),
            "line 1: these call arguments are in an impossible order");
  EXPECT_EQ(error_of("{{ a. }}"), "line 1: expected a name, got '}}'");
  EXPECT_EQ(error_of("{{ a| }}"), "line 1: expected a name, got '}}'");
  EXPECT_EQ(error_of("{{ a is }}"), "line 1: expected a name, got '}}'");
  EXPECT_EQ(error_of("{{ {1} }}"), "line 1: expected ':', got '}'");
  EXPECT_EQ(error_of("{% if a b %}{% endif %}"), "line 1: expected '%}', got 'b'");
  EXPECT_EQ(error_of("{% for a on b %}{% endfor %}"), "line 1: expected 'in', got 'on'");
  EXPECT_EQ(error_of("{% set true = 1 %}"), "line 1: 'true' cannot be assigned to");
  EXPECT_EQ(error_of("{% macro m(a, a) %}{% endmacro %}"), "line 1: parameter 'a' is named twice");
  EXPECT_EQ(error_of("{% macro m(a=1, b) %}{% endmacro %}"),
            "line 1: a parameter without a default follows one with a default");
  EXPECT_EQ(error_of("{% call a %}{% endcall %}"),
            "line 1: a call block needs a call, as in {% call name() %}");
  EXPECT_EQ(error_of("{% 'x' %}"), "line 1: expected a statement, got a string");
  EXPECT_EQ(error_of("a\n\n{% if x %}\n{% endfor %}"), "line 4: unknown statement 'endfor'");
  EXPECT_EQ(error_of("{{ 1 is nosuch }}"), "line 1: no test named 'nosuch'");
  EXPECT_EQ(error_of("{% if x %}{{ 1 is nosuch }}{% endif %}"), "none");
}

TEST(JinjaParser, KindsOfErrors) {
  EXPECT_EQ(parse_template("{% include 'a' %}", {}).status().code(), StatusCode::kUnsupported);
  EXPECT_EQ(parse_template("{{ }}", {}).status().code(), StatusCode::kInvalidArgument);
  EXPECT_EQ(parse_template(std::string(std::size_t{1} << 21, 'a'), {}).status().code(),
            StatusCode::kResourceExhausted);
}

TEST(JinjaParser, MacrosKnowWhatTheyUse) {
  const Result<SyntaxTree> tree = parse_template(
      "{% macro a() %}{{ caller() }}{% endmacro %}{% macro b() %}{{ varargs }}{% endmacro %}"
      "{% macro c(x, y=1) %}{{ kwargs }}{% endmacro %}{% macro d() %}{{ other }}{% endmacro %}",
      {});
  ASSERT_TRUE(tree.is_ok());
  const Block& body = tree.value().body;
  ASSERT_EQ(body.size(), 4U);
  EXPECT_TRUE(body[0].macro->uses_caller && !body[0].macro->uses_varargs);
  EXPECT_TRUE(body[1].macro->uses_varargs && !body[1].macro->uses_kwargs);
  EXPECT_TRUE(body[2].macro->uses_kwargs && !body[2].macro->uses_caller);
  EXPECT_EQ(body[2].macro->parameters.size(), 2U);
  EXPECT_EQ(body[2].macro->defaults.size(), 1U);
  EXPECT_FALSE(body[3].macro->uses_caller || body[3].macro->uses_kwargs);
}

TEST(JinjaParser, EqualNamesAreOneSymbol) {
  const Result<SyntaxTree> tree = parse_template("{{ abc }}{{ abc }}", {});
  ASSERT_TRUE(tree.is_ok());
  EXPECT_EQ(tree.value().body[0].exprs[0]->symbol, tree.value().body[1].exprs[0]->symbol);
}

TEST(JinjaParser, TreesSurviveAMove) {
  Result<SyntaxTree> made = parse_template("text {{ 'literal' ~ name }}", {});
  ASSERT_TRUE(made.is_ok());
  const SyntaxTree tree = std::move(made).value();
  EXPECT_EQ(tree.body[0].text, "text ");
  EXPECT_EQ(show(*tree.body[1].exprs[0]), "('literal'~name)");
}

}  // namespace
}  // namespace motley::jinja
