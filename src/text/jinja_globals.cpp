// Global functions: range, dict, namespace, cycler, joiner, raise_exception, strftime_now.
#include <fmt/format.h>

#include <array>
#include <memory>

#include "text/jinja_builtins.h"
#include "text/jinja_native.h"
#include "text/jinja_objects.h"
#include "text/jinja_ops.h"
#include "text/jinja_print.h"

namespace motley::jinja {
namespace {

class GlobalFunction : public Object {
 public:
  explicit GlobalFunction(const NativeDefinition& definition) : definition_(definition) {}

  std::string_view type_name() const override { return "function"; }
  bool is_callable() const override { return true; }
  Value call(Runtime& runtime, CallArguments& arguments) override {
    return call_native(runtime, "function", definition_, Value(), arguments);
  }

 private:
  const NativeDefinition& definition_;
};

struct Joiner : Object {
  Value separator;
  bool used = false;

  std::string_view type_name() const override { return "joiner"; }
  bool is_callable() const override { return true; }
  Value call(Runtime& runtime, CallArguments&) override {
    if (std::exchange(used, true)) return separator;
    return runtime.make_string("");
  }
};

struct Cycler;
using CyclerMethod = Value (Cycler::*)();

// One of the cycler's methods, to be called.
struct CyclerCall : Object {
  Cycler* cycler = nullptr;
  CyclerMethod method = nullptr;

  std::string_view type_name() const override { return "method"; }
  bool is_callable() const override { return true; }
  Value call(Runtime& runtime, CallArguments& arguments) override;
};

struct Cycler : Object {
  std::vector<Value> items;
  std::size_t position = 0;

  std::string_view type_name() const override { return "cycler"; }
  Value next() {
    const Value item = items[position];
    position = (position + 1) % items.size();
    return item;
  }
  Value reset() {
    position = 0;
    return Value::none();
  }
  Value attribute(Runtime& runtime, std::string_view name) override {
    if (name == "current") return items[position];
    if (name != "next" && name != "reset") return {};
    auto made = std::make_unique<CyclerCall>();
    made->cycler = this;
    made->method = name == "next" ? &Cycler::next : &Cycler::reset;
    return runtime.adopt(std::move(made));
  }
};

Value CyclerCall::call(Runtime& /*runtime*/, CallArguments& /*arguments*/) {
  return (cycler->*method)();
}

Value make_cycler(Runtime& runtime, const Value&, CallArguments& arguments) {
  if (arguments.positional.empty() || !arguments.named.empty()) {
    return runtime.fail("cycler() needs at least one item");
  }
  auto made = std::make_unique<Cycler>();
  made->items = arguments.positional;
  return runtime.adopt(std::move(made));
}

Value make_joiner(Runtime& runtime, const Value&, CallArguments& arguments) {
  auto made = std::make_unique<Joiner>();
  const Value& separator = argument(arguments, 0);
  made->separator = separator.is_missing() ? runtime.make_string(", ") : separator;
  return runtime.adopt(std::move(made));
}

Value range(Runtime& runtime, const Value&, CallArguments& arguments) {
  for (const Value& bound : arguments.positional) {
    if (!bound.is_missing() && !bound.is_integral()) {
      return runtime.fail(fmt::format("range() needs integers, not a {}", type_name(bound)));
    }
  }
  const Value& first = argument(arguments, 0);
  const Value& second = argument(arguments, 1);
  if (second.is_missing()) return runtime.make_range(0, first.as_int(), 1);
  return runtime.make_range(first.as_int(), second.as_int(),
                            integer_argument(runtime, argument(arguments, 2), 1));
}

// Entries of dict() and namespace(): one dict or list of pairs by position, then names.
std::vector<std::pair<Value, Value>> gather_entries(Runtime& runtime, std::string_view function,
                                                    const CallArguments& arguments) {
  std::vector<std::pair<Value, Value>> entries;
  if (arguments.positional.size() > 1) {
    runtime.fail(fmt::format("{}() takes at most one positional argument", function));
    return entries;
  }
  if (!arguments.positional.empty()) {
    const Value& source = arguments.positional[0];
    if (source.is_undefined()) {
      runtime.fail(undefined_message(source));
    } else if (source.is_dict()) {
      entries = source.as_dict().entries;
    } else {
      for (const Value& pair : iterate(runtime, source)) {
        const std::vector<Value> parts = iterate(runtime, pair);
        if (parts.size() != 2) {
          runtime.fail(fmt::format("{}() needs pairs of key and value", function));
          return entries;
        }
        entries.emplace_back(parts[0], parts[1]);
      }
    }
  }
  for (const auto& [name, value] : arguments.named) {
    entries.emplace_back(runtime.make_string(std::string(name)), value);
  }
  return entries;
}

Value make_dict(Runtime& runtime, const Value&, CallArguments& arguments) {
  return runtime.make_dict(gather_entries(runtime, "dict", arguments));
}

Value make_namespace(Runtime& runtime, const Value&, CallArguments& arguments) {
  auto made = std::make_unique<NamespaceObject>();
  for (const auto& [key, value] : gather_entries(runtime, "namespace", arguments)) {
    // Names are looked up one by one, so a large dict costs its square.
    if (!runtime.step(static_cast<std::int64_t>(made->attributes.size()) + 1)) return {};
    if (key.is_string()) made->set(key.text(), value);
  }
  return runtime.adopt(std::move(made));
}

Value raise_exception(Runtime& runtime, const Value&, CallArguments& arguments) {
  return runtime.fail("the template refuses: " + to_str(runtime, argument(arguments, 0)));
}

Value format_time(Runtime& runtime, const Value&, CallArguments& arguments) {
  const std::string format = string_argument(runtime, argument(arguments, 0), "");
  if (format.empty() || runtime.failed()) return runtime.make_string("");
  std::array<char, 512> text{};
  const std::size_t size = std::strftime(text.data(), text.size(), format.c_str(), &runtime.now());
  if (size == 0) return runtime.fail("strftime_now() makes no text of this format");
  return runtime.make_string(std::string(text.data(), size));
}

constexpr NativeDefinition kGlobals[] = {
    {"range", range, 1, {"start", "stop", "step"}, false},
    {"dict", make_dict, 0, {}, true, true},
    {"namespace", make_namespace, 0, {}, true, true},
    {"cycler", make_cycler, 0, {}, true, true},
    {"joiner", make_joiner, 0, {"sep"}},
    {"raise_exception", raise_exception, 1, {"message"}},
    {"strftime_now", format_time, 1, {"format"}},
};

}  // namespace

Value NamespaceObject::attribute(Runtime& /*runtime*/, std::string_view name) {
  for (const auto& [known, value] : attributes) {
    if (known == name) return value;
  }
  return {};
}

void NamespaceObject::set(std::string_view name, const Value& value) {
  for (auto& [known, stored] : attributes) {
    if (known == name) {
      stored = value;
      return;
    }
  }
  attributes.emplace_back(name, value);
}

bool is_global_name(std::string_view name) {
  return find_native(kGlobals, name) != nullptr;
}

Value global_function(Runtime& runtime, std::string_view name) {
  const NativeDefinition* definition = find_native(kGlobals, name);
  if (definition == nullptr) return {};
  return runtime.adopt(std::make_unique<GlobalFunction>(*definition));
}

}  // namespace motley::jinja
