// Macros and the bodies of call blocks as values.
#pragma once

#include "text/jinja_ast.h"
#include "text/jinja_eval.h"

namespace motley::jinja {

class MacroObject : public Object {
 public:
  MacroObject(Interpreter& interpreter, const MacroDeclaration& declaration, Scope& scope)
      : interpreter_(interpreter), declaration_(declaration), scope_(scope) {}

  std::string_view type_name() const override { return "macro"; }
  bool is_callable() const override { return true; }
  Value attribute(Runtime& runtime, std::string_view name) override;
  Value call(Runtime& runtime, CallArguments& arguments) override;
  std::string describe(Runtime& runtime) const override;

 private:
  bool bind(Runtime& runtime, CallArguments& arguments, Scope& scope);
  bool bind_rest(Runtime& runtime, const CallArguments& arguments, const std::vector<bool>& used,
                 Scope& scope);

  Interpreter& interpreter_;
  const MacroDeclaration& declaration_;
  Scope& scope_;
};

}  // namespace motley::jinja
