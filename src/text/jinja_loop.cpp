#include "text/jinja_loop.h"

#include <memory>

#include "text/jinja_ops.h"

namespace motley::jinja {
namespace {

// loop.cycle and loop.changed as values to be called.
class LoopMethod : public Object {
 public:
  LoopMethod(LoopObject& loop, bool is_cycle) : loop_(loop), is_cycle_(is_cycle) {}

  std::string_view type_name() const override { return "method"; }
  bool is_callable() const override { return true; }
  Value call(Runtime& runtime, CallArguments& arguments) override {
    if (!arguments.named.empty()) return runtime.fail("loop methods take no named arguments");
    return is_cycle_ ? loop_.cycle(runtime, arguments) : loop_.changed(runtime, arguments);
  }

 private:
  LoopObject& loop_;
  const bool is_cycle_;
};

}  // namespace

std::optional<Value> LoopObject::draw() {
  Runtime& runtime = interpreter_.runtime();
  while (next_ < items_.size() && runtime.step()) {
    const Value item = items_[next_++];
    if (filter_ == nullptr) return item;
    Scope& scope = interpreter_.new_scope(&scope_);
    interpreter_.assign(target_, item, scope);
    if (truthy(interpreter_.evaluate(*filter_, scope))) return item;
  }
  return std::nullopt;
}

bool LoopObject::peek() {
  if (!ahead_.empty()) return true;
  const std::optional<Value> item = draw();
  if (item) ahead_.push_back(*item);
  return item.has_value();
}

bool LoopObject::advance() {
  if (!peek()) return false;
  previous_ = current_;
  current_ = ahead_.front();
  ahead_.pop_front();
  ++index0_;
  return !interpreter_.runtime().failed();
}

std::int64_t LoopObject::length() {
  while (const std::optional<Value> item = draw()) ahead_.push_back(*item);
  return index0_ + 1 + static_cast<std::int64_t>(ahead_.size());
}

Value LoopObject::neighbour(Runtime& runtime, std::string_view name) {
  if (name == "previtem") {
    return index0_ > 0 ? previous_ : runtime.make_undefined("there is no previous item");
  }
  return peek() ? ahead_.front() : runtime.make_undefined("there is no next item");
}

Value LoopObject::attribute(Runtime& runtime, std::string_view name) {
  if (name == "index") return Value::integer(index0_ + 1);
  if (name == "index0") return Value::integer(index0_);
  if (name == "first") return Value::boolean(index0_ == 0);
  if (name == "last") return Value::boolean(!peek());
  if (name == "length") return Value::integer(length());
  if (name == "revindex") return Value::integer(length() - index0_);
  if (name == "revindex0") return Value::integer(length() - index0_ - 1);
  if (name == "previtem" || name == "nextitem") return neighbour(runtime, name);
  if (name == "depth") return Value::integer(1);
  if (name == "depth0") return Value::integer(0);
  if (name == "cycle" || name == "changed") {
    return runtime.adopt(std::make_unique<LoopMethod>(*this, name == "cycle"));
  }
  return runtime.make_undefined("a loop has no '" + std::string(name) + "'");
}

Value LoopObject::cycle(Runtime& runtime, const CallArguments& arguments) const {
  if (arguments.positional.empty()) return runtime.fail("loop.cycle() needs at least one item");
  const auto count = static_cast<std::int64_t>(arguments.positional.size());
  return arguments.positional[static_cast<std::size_t>(index0_ % count)];
}

Value LoopObject::changed(Runtime& runtime, const CallArguments& arguments) {
  bool same = last_changed_ && last_changed_->size() == arguments.positional.size();
  for (std::size_t i = 0; same && i < arguments.positional.size(); ++i) {
    same = equals(runtime, (*last_changed_)[i], arguments.positional[i]);
  }
  if (!same) last_changed_ = arguments.positional;
  return Value::boolean(!same);
}

}  // namespace motley::jinja
