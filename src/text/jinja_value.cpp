#include "text/jinja_value.h"

#include "text/jinja_runtime.h"

namespace motley::jinja {

Value Value::undefined(const StringData* hint) {
  Value value;
  value.string_ = hint;
  return value;
}

Value Value::missing() {
  Value value;
  value.kind_ = ValueKind::kMissing;
  return value;
}

Value Value::none() {
  Value value;
  value.kind_ = ValueKind::kNone;
  return value;
}

Value Value::boolean(bool boolean) {
  Value value;
  value.kind_ = ValueKind::kBool;
  value.integer_ = boolean ? 1 : 0;
  return value;
}

Value Value::integer(std::int64_t integer) {
  Value value;
  value.kind_ = ValueKind::kInt;
  value.integer_ = integer;
  return value;
}

Value Value::real(double real) {
  Value value;
  value.kind_ = ValueKind::kFloat;
  value.real_ = real;
  return value;
}

Value Value::string(const StringData* data) {
  Value value;
  value.kind_ = ValueKind::kString;
  value.string_ = data;
  return value;
}

Value Value::list(ListData* data) {
  Value value;
  value.kind_ = ValueKind::kList;
  value.list_ = data;
  return value;
}

Value Value::dict(const DictData* data) {
  Value value;
  value.kind_ = ValueKind::kDict;
  value.dict_ = data;
  return value;
}

Value Value::object(Object* data) {
  Value value;
  value.kind_ = ValueKind::kObject;
  value.object_ = data;
  return value;
}

const Value* DictData::find(std::string_view key) const {
  if (!index.empty()) {
    const auto found = index.find(key);
    return found == index.end() ? nullptr : &entries[found->second].second;
  }
  for (const auto& [name, value] : entries) {
    if (name.is_string() && name.text() == key) return &value;
  }
  return nullptr;
}

Value Object::attribute(Runtime& /*runtime*/, std::string_view /*name*/) {
  return {};
}

Value Object::call(Runtime& runtime, CallArguments& /*arguments*/) {
  return runtime.fail("a " + std::string(type_name()) + " cannot be called");
}

std::string Object::describe(Runtime& /*runtime*/) const {
  return "<" + std::string(type_name()) + ">";
}

std::string_view type_name(const Value& value) {
  switch (value.kind()) {
    case ValueKind::kUndefined:
    case ValueKind::kMissing:
      return "undefined value";
    case ValueKind::kNone:
      return "none";
    case ValueKind::kBool:
      return "bool";
    case ValueKind::kInt:
      return "int";
    case ValueKind::kFloat:
      return "float";
    case ValueKind::kString:
      return "string";
    case ValueKind::kDict:
      return "dict";
    case ValueKind::kObject:
      return value.as_object().type_name();
    case ValueKind::kList:
      break;
  }
  switch (value.as_list().flavour) {
    case ListFlavour::kTuple:
    case ListFlavour::kGroup:
      return "tuple";
    case ListFlavour::kRange:
      return "range";
    case ListFlavour::kDictKeys:
    case ListFlavour::kDictValues:
    case ListFlavour::kDictItems:
      return "dict view";
    case ListFlavour::kIterator:
      return "iterator";
    case ListFlavour::kList:
      break;
  }
  return "list";
}

}  // namespace motley::jinja
