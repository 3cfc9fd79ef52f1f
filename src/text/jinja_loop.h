// The `loop` variable. Items are drawn one at a time, so that a loop's filter sees what earlier
// turns have done; asking for the length or the next item draws ahead.
#pragma once

#include <deque>
#include <optional>
#include <vector>

#include "text/jinja_ast.h"
#include "text/jinja_eval.h"

namespace motley::jinja {

class LoopObject : public Object {
 public:
  // `filter` may be null. `scope` is the one around the loop.
  LoopObject(Interpreter& interpreter, std::vector<Value> items, const Expr& target,
             const Expr* filter, Scope& scope)
      : interpreter_(interpreter),
        items_(std::move(items)),
        target_(target),
        filter_(filter),
        scope_(scope) {}

  // Moves to the next item that passes the filter; false at the end.
  bool advance();
  const Value& current() const { return current_; }

  std::string_view type_name() const override { return "loop"; }
  Value attribute(Runtime& runtime, std::string_view name) override;

  Value cycle(Runtime& runtime, const CallArguments& arguments) const;
  Value changed(Runtime& runtime, const CallArguments& arguments);

 private:
  std::optional<Value> draw();
  bool peek();
  std::int64_t length();
  Value neighbour(Runtime& runtime, std::string_view name);

  Interpreter& interpreter_;
  const std::vector<Value> items_;
  const Expr& target_;
  const Expr* filter_;
  Scope& scope_;
  std::size_t next_ = 0;
  std::int64_t index0_ = -1;
  std::deque<Value> ahead_;
  Value previous_;
  Value current_;
  std::optional<std::vector<Value>> last_changed_;
};

}  // namespace motley::jinja
