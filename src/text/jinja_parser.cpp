#include "text/jinja_parser.h"

#include <fmt/format.h>

#include <array>
#include <initializer_list>
#include <utility>

#include "text/jinja_expression_parser.h"
#include "text/jinja_unicode.h"

namespace motley::jinja {
namespace {

class Parser : public ExpressionParser {
 public:
  using ExpressionParser::ExpressionParser;

  Result<SyntaxTree> run() {
    tree_.body = parse_block({});
    if (failed()) return status_;
    return std::move(tree_);
  }

 private:
  using Ends = std::initializer_list<std::string_view>;

  // Statements up to one of the end tags, whose name is then the current token.
  Block parse_block(Ends ends) {
    const Nested nested(*this);
    Block block;
    while (!failed() && current().kind != TokenKind::kEnd) {
      if (current().kind == TokenKind::kData) {
        add_text(block);
      } else if (current().kind == TokenKind::kVariableBegin) {
        add_print(block);
      } else {
        next();
        if (at_one_of(ends)) return block;
        parse_statement(block);
        if (current().kind != TokenKind::kBlockEnd) {
          fail(fmt::format("expected '%}}', got {}", describe(current())));
        }
        next();
      }
    }
    if (ends.size() != 0) {
      fail(fmt::format("the template ends inside a block, '{}' is missing", *(ends.end() - 1)));
    }
    return block;
  }

  bool at_one_of(Ends ends) const {
    for (const std::string_view end : ends) {
      if (at_name(end)) return true;
    }
    return false;
  }

  // Ends the opening tag, then reads the block.
  Block parse_body(Ends ends) {
    skip_operator(":");
    if (current().kind != TokenKind::kBlockEnd) {
      fail(fmt::format("expected '%}}', got {}", describe(current())));
    }
    next();
    return parse_block(ends);
  }

  // A body whose end tag is consumed, in a scope where `loop` statements do not reach out.
  Block parse_separate_body(std::string_view end) {
    const int loops = std::exchange(loop_depth_, 0);
    Block body = parse_body({end});
    next();
    loop_depth_ = loops;
    return body;
  }

  Statement& add(Block& block, StatementKind kind, int line) {
    Statement& statement = block.emplace_back();
    statement.kind = kind;
    statement.line = line;
    return statement;
  }

  void add_text(Block& block) {
    const int line = current().line;
    add(block, StatementKind::kText, line).text = literal(next().text);
  }

  void add_print(Block& block) {
    const int line = next().line;
    Statement& statement = add(block, StatementKind::kPrint, line);
    statement.exprs.push_back(parse_tuple());
    if (current().kind != TokenKind::kVariableEnd) {
      fail(fmt::format("expected '}}}}', got {}", describe(current())));
    }
    next();
  }

  void parse_statement(Block& block) {
    using Handler = void (Parser::*)(Block&, int);
    struct Entry {
      std::string_view name;
      Handler handler;
    };
    static constexpr std::array<Entry, 11> kStatements = {{
        {"if", &Parser::parse_if},
        {"for", &Parser::parse_for},
        {"set", &Parser::parse_set},
        {"macro", &Parser::parse_macro},
        {"call", &Parser::parse_call_block},
        {"filter", &Parser::parse_filter_block},
        {"with", &Parser::parse_with},
        {"print", &Parser::parse_print},
        {"break", &Parser::parse_loop_control},
        {"continue", &Parser::parse_loop_control},
        {"generation", &Parser::parse_generation},
    }};
    static constexpr std::array<std::string_view, 9> kLeftOut = {
        "extends", "block", "include", "import", "from", "autoescape", "do", "trans", "debug"};
    if (current().kind != TokenKind::kName) {
      return fail(fmt::format("expected a statement, got {}", describe(current())));
    }
    const int line = current().line;
    for (const Entry& entry : kStatements) {
      if (at_name(entry.name)) return (this->*entry.handler)(block, line);
    }
    for (const std::string_view name : kLeftOut) {
      if (at_name(name)) {
        return fail_at(line, fmt::format("the statement '{}' is not supported", name),
                       StatusCode::kUnsupported);
      }
    }
    fail(fmt::format("unknown statement {}", describe(current())));
  }

  void parse_if(Block& block, int line) {
    Statement statement;
    statement.kind = StatementKind::kIf;
    statement.line = line;
    next();
    ++conditional_depth_;
    while (!failed()) {
      Branch& branch = statement.branches.emplace_back();
      branch.condition = parse_tuple(false);
      branch.body = parse_body({"elif", "else", "endif"});
      if (skip_name("elif")) continue;
      const bool has_else = at_name("else");
      next();
      if (has_else) {
        Branch& otherwise = statement.branches.emplace_back();
        otherwise.body = parse_body({"endif"});
        next();
      }
      break;
    }
    --conditional_depth_;
    block.push_back(std::move(statement));
  }

  void parse_for(Block& block, int line) {
    Statement statement;
    statement.kind = StatementKind::kFor;
    statement.line = line;
    next();
    statement.target = parse_target(false);
    if (!skip_name("in")) fail(fmt::format("expected 'in', got {}", describe(current())));
    statement.exprs.push_back(parse_tuple(false));
    bind_target(*statement.target);
    statement.exprs.push_back(skip_name("if") ? parse_expression() : nullptr);
    if (at_name("recursive")) {
      return fail_at(line, "recursive loops are not supported", StatusCode::kUnsupported);
    }
    bind_name("loop");
    ++loop_depth_;
    statement.body = parse_body({"else", "endfor"});
    --loop_depth_;
    const bool has_else = at_name("else");
    next();
    if (has_else) {
      statement.otherwise = parse_body({"endfor"});
      next();
    }
    block.push_back(std::move(statement));
  }

  void parse_set(Block& block, int line) {
    Statement statement;
    statement.line = line;
    next();
    statement.target = parse_target(true);
    if (skip_operator("=")) {
      statement.kind = StatementKind::kSet;
      statement.exprs.push_back(parse_tuple());
    } else {
      statement.kind = StatementKind::kSetBlock;
      const bool filtered = skip_operator("|");
      statement.exprs.push_back(filtered ? parse_filter_chain(nullptr, true) : nullptr);
      statement.body = parse_body({"endset"});
      next();
    }
    bind_target(*statement.target);
    block.push_back(std::move(statement));
  }

  void parse_signature(MacroDeclaration& macro) {
    expect_operator("(");
    while (!failed() && !at_operator(")")) {
      if (!macro.parameters.empty()) expect_operator(",");
      macro.parameters.push_back(symbol(expect_name()));
      for (std::size_t i = 0; i + 1 < macro.parameters.size(); ++i) {
        if (macro.parameters[i] == macro.parameters.back()) {
          fail(fmt::format("parameter '{}' is named twice", *macro.parameters.back()));
        }
      }
      if (skip_operator("=")) {
        macro.defaults.push_back(parse_expression());
      } else if (!macro.defaults.empty()) {
        fail("a parameter without a default follows one with a default");
      }
      bind_name(*macro.parameters.back());
    }
    expect_operator(")");
  }

  void parse_macro_body(MacroDeclaration& macro, std::string_view end) {
    bind_name("caller");
    bind_name("varargs");
    bind_name("kwargs");
    open_macros_.push_back(&macro);
    macro.body = parse_separate_body(end);
    open_macros_.pop_back();
  }

  void parse_macro(Block& block, int line) {
    Statement statement;
    statement.kind = StatementKind::kMacro;
    statement.line = line;
    next();
    statement.macro = std::make_unique<MacroDeclaration>();
    statement.macro->name = symbol(expect_name());
    bind_name(*statement.macro->name);
    parse_signature(*statement.macro);
    parse_macro_body(*statement.macro, "endmacro");
    block.push_back(std::move(statement));
  }

  void parse_call_block(Block& block, int line) {
    Statement statement;
    statement.kind = StatementKind::kCallBlock;
    statement.line = line;
    next();
    statement.macro = std::make_unique<MacroDeclaration>();
    statement.macro->name = symbol("caller");
    if (at_operator("(")) parse_signature(*statement.macro);
    statement.exprs.push_back(parse_expression());
    if (statement.exprs[0]->kind != ExprKind::kCall) {
      return fail_at(line, "a call block needs a call, as in {% call name() %}");
    }
    parse_macro_body(*statement.macro, "endcall");
    block.push_back(std::move(statement));
  }

  void parse_filter_block(Block& block, int line) {
    Statement statement;
    statement.kind = StatementKind::kFilterBlock;
    statement.line = line;
    next();
    statement.exprs.push_back(parse_filter_chain(nullptr, true));
    statement.body = parse_body({"endfilter"});
    next();
    block.push_back(std::move(statement));
  }

  void parse_with(Block& block, int line) {
    Statement statement;
    statement.kind = StatementKind::kWith;
    statement.line = line;
    next();
    while (!failed() && current().kind != TokenKind::kBlockEnd && !at_operator(":")) {
      if (!statement.assignments.empty()) expect_operator(",");
      ExprPtr target = parse_target(false);
      expect_operator("=");
      ExprPtr value = parse_expression();
      statement.assignments.emplace_back(std::move(target), std::move(value));
    }
    for (const auto& assignment : statement.assignments) bind_target(*assignment.first);
    statement.body = parse_body({"endwith"});
    next();
    block.push_back(std::move(statement));
  }

  void parse_print(Block& block, int line) {
    next();
    while (!failed() && current().kind != TokenKind::kBlockEnd) {
      add(block, StatementKind::kPrint, line).exprs.push_back(parse_expression());
      if (current().kind != TokenKind::kBlockEnd) expect_operator(",");
    }
  }

  void parse_loop_control(Block& block, int line) {
    const std::string name = next().text;
    if (loop_depth_ == 0) return fail_at(line, fmt::format("'{}' outside a loop", name));
    add(block, name == "break" ? StatementKind::kBreak : StatementKind::kContinue, line);
  }

  // Marks the assistant's own text for training; rendering only copies its body, which has its own
  // scope because the released implementation makes it a call block.
  void parse_generation(Block& block, int line) {
    next();
    Statement statement;
    statement.kind = StatementKind::kWith;
    statement.line = line;
    statement.body = parse_separate_body("endgeneration");
    block.push_back(std::move(statement));
  }

  int loop_depth_ = 0;
};

}  // namespace

Result<SyntaxTree> parse_template(std::string_view source, const JinjaLimits& limits) {
  if (source.size() > limits.max_source_bytes) {
    return resource_exhausted(fmt::format("a template of {} bytes is over the limit of {}",
                                          source.size(), limits.max_source_bytes));
  }
  if (!is_valid_utf8(source)) return invalid_argument("the template is not valid UTF-8");
  MOTLEY_ASSIGN_OR_RETURN(std::vector<Token> tokens, tokenize(source));
  return Parser(std::move(tokens), limits).run();
}

}  // namespace motley::jinja
