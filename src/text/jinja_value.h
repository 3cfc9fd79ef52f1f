// Values of the template language, with Python's meaning.
//
// A Value is 16 bytes and is copied freely. Strings, lists, dicts and objects are owned by the
// Runtime of one rendering (or, for literals, by the parsed template) and outlive every Value that
// points to them. They do not change once made, as in Jinja2's immutable sandbox; the exceptions
// are objects such as namespaces and the read position of an iterator.
//
// Thread rule: literals are shared read-only between threads; all else belongs to one rendering.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

namespace motley::jinja {

class Runtime;
struct ListData;
struct DictData;
struct Object;

enum class ValueKind : std::uint8_t {
  kUndefined,
  kMissing,  // an argument that was not given; never visible to a template
  kNone,
  kBool,
  kInt,
  kFloat,
  kString,
  kList,
  kDict,
  kObject,
};

// UTF-8 text. `safe` marks a string that counts as already escaped (the `safe` and `escape`
// filters): adding plain text to it escapes that text, as Jinja2 does.
struct StringData {
  std::string text;
  std::size_t code_points = 0;
  bool safe = false;

  bool is_ascii() const { return code_points == text.size(); }
};

class Value {
 public:
  Value() = default;  // undefined

  static Value undefined(const StringData* hint = nullptr);
  static Value missing();
  static Value none();
  static Value boolean(bool value);
  static Value integer(std::int64_t value);
  static Value real(double value);
  static Value string(const StringData* data);
  static Value list(ListData* data);
  static Value dict(const DictData* data);
  static Value object(Object* data);

  ValueKind kind() const { return kind_; }
  bool is(ValueKind kind) const { return kind_ == kind; }
  bool is_undefined() const { return kind_ == ValueKind::kUndefined; }
  bool is_missing() const { return kind_ == ValueKind::kMissing; }
  bool is_none() const { return kind_ == ValueKind::kNone; }
  bool is_string() const { return kind_ == ValueKind::kString; }
  bool is_list() const { return kind_ == ValueKind::kList; }
  bool is_dict() const { return kind_ == ValueKind::kDict; }
  bool is_object() const { return kind_ == ValueKind::kObject; }
  // Python's int, which includes bool.
  bool is_integral() const { return kind_ == ValueKind::kInt || kind_ == ValueKind::kBool; }
  bool is_number() const { return is_integral() || kind_ == ValueKind::kFloat; }

  // Each requires the matching kind.
  bool as_bool() const { return integer_ != 0; }
  std::int64_t as_int() const { return integer_; }
  double as_double() const {
    return kind_ == ValueKind::kFloat ? real_ : static_cast<double>(integer_);
  }
  const StringData& as_string() const { return *string_; }
  std::string_view text() const { return string_->text; }
  ListData& as_list() const { return *list_; }
  const DictData& as_dict() const { return *dict_; }
  Object& as_object() const { return *object_; }
  // What an undefined value was meant to be, for error messages; may be null.
  const StringData* undefined_hint() const { return string_; }

 private:
  ValueKind kind_ = ValueKind::kUndefined;
  union {
    std::int64_t integer_;
    double real_;
    const StringData* string_ = nullptr;
    ListData* list_;
    const DictData* dict_;
    Object* object_;
  };
};

// Python's sequence types that templates can meet; they print and index differently.
enum class ListFlavour : std::uint8_t {
  kList,
  kTuple,
  kRange,
  kDictKeys,
  kDictValues,
  kDictItems,
  kGroup,     // the (grouper, list) pairs of `groupby`
  kIterator,  // the lazy results of `map`, `select`, ...: no length, read once
};

struct ListData {
  ListFlavour flavour = ListFlavour::kList;
  int depth = 1;           // nesting, bounded when made
  std::size_t cursor = 0;  // kIterator: next item to be read
  std::int64_t start = 0;  // kRange: for printing
  std::int64_t stop = 0;
  std::int64_t step = 1;
  std::vector<Value> items;
};

// Insertion-ordered; equal keys as in Python (1, 1.0 and True are one key).
struct DictData {
  int depth = 1;
  std::vector<std::pair<Value, Value>> entries;
  // Text keys of dicts with more than a few entries.
  std::unordered_map<std::string_view, std::uint32_t> index;

  const Value* find(std::string_view key) const;
};

// Arguments of a call: positional, then by name.
struct CallArguments {
  std::vector<Value> positional;
  std::vector<std::pair<std::string_view, Value>> named;
};

// Anything with behaviour: namespaces, macros, bound methods, loop state.
struct Object {
  Object() = default;
  Object(const Object&) = delete;
  Object& operator=(const Object&) = delete;
  virtual ~Object() = default;

  virtual std::string_view type_name() const = 0;
  // Undefined when there is no such attribute.
  virtual Value attribute(Runtime& runtime, std::string_view name);
  virtual bool is_callable() const { return false; }
  virtual Value call(Runtime& runtime, CallArguments& arguments);
  // What `{{ x }}` prints.
  virtual std::string describe(Runtime& runtime) const;
};

// Python's name of the type, for messages: "str", "int", "dict".
std::string_view type_name(const Value& value);

}  // namespace motley::jinja
