// Iteration, attributes, subscripts and slices.
#include "text/jinja_ops.h"

#include <fmt/format.h>

#include <algorithm>

#include "text/jinja_builtins.h"
#include "text/jinja_print.h"
#include "text/jinja_unicode.h"

namespace motley::jinja {
namespace {

std::vector<Value> characters_of(Runtime& runtime, const StringData& string) {
  std::vector<Value> items;
  if (!runtime.reserve_items(string.code_points)) return items;
  items.reserve(string.code_points);
  std::size_t position = 0;
  while (position < string.text.size() && !runtime.failed()) {
    const std::size_t start = position;
    next_code_point(string.text, position);
    items.push_back(runtime.make_string(string.text.substr(start, position - start)));
  }
  return items;
}

bool is_indexable(const ListData& list) {
  return list.flavour == ListFlavour::kList || list.flavour == ListFlavour::kTuple ||
         list.flavour == ListFlavour::kGroup || list.flavour == ListFlavour::kRange;
}

Value no_attribute(Runtime& runtime, const Value& object, std::string_view name) {
  return runtime.make_undefined(fmt::format("a {} has no '{}'", type_name(object), name));
}

// object[key] without the fall-back; `found` says whether there was such an item.
Value own_item(Runtime& runtime, const Value& object, const Value& key, bool& found) {
  found = false;
  if (object.is_dict()) {
    if (!is_hashable(key)) return {};
    const Value* entry = find_entry(runtime, object.as_dict(), key);
    found = entry != nullptr;
    return found ? *entry : Value();
  }
  if (!key.is_integral()) return {};
  const bool is_string = object.is_string();
  if (!is_string && !(object.is_list() && is_indexable(object.as_list()))) return {};
  const auto size = static_cast<std::int64_t>(is_string ? object.as_string().code_points
                                                        : object.as_list().items.size());
  const std::int64_t index = key.as_int() < 0 ? key.as_int() + size : key.as_int();
  if (index < 0 || index >= size) return {};
  found = true;
  if (!is_string) return object.as_list().items[static_cast<std::size_t>(index)];
  const StringData& string = object.as_string();
  if (!runtime.step_bytes(string.is_ascii() ? 0 : string.text.size())) return {};
  const std::size_t begin =
      byte_offset(string.text, static_cast<std::size_t>(index), string.is_ascii());
  std::size_t end = begin;
  next_code_point(string.text, end);
  return runtime.make_string(string.text.substr(begin, end - begin), string.safe);
}

Value own_attribute(Runtime& runtime, const Value& object, std::string_view name) {
  if (object.is_object()) return object.as_object().attribute(runtime, name);
  if (object.is_list() && object.as_list().flavour == ListFlavour::kGroup) {
    if (name == "grouper") return object.as_list().items[0];
    if (name == "list") return object.as_list().items[1];
  }
  return bound_method(runtime, object, name);
}

struct SliceRange {
  std::int64_t start;
  std::int64_t end;
  std::int64_t count;
  std::int64_t step;
};

// Python's slice.indices. False (and failed) when a bound is not an integer.
bool resolve_slice(Runtime& runtime, std::int64_t size, const Value& start, const Value& stop,
                   const Value& step, SliceRange& range) {
  for (const Value* bound : {&start, &stop, &step}) {
    if (!bound->is_none() && !bound->is_integral()) {
      runtime.fail(fmt::format("slice bounds must be integers, not a {}", type_name(*bound)));
      return false;
    }
  }
  range.step = step.is_none() ? 1 : step.as_int();
  if (range.step == 0) {
    runtime.fail("a slice step cannot be 0");
    return false;
  }
  const bool backward = range.step < 0;
  const std::int64_t lowest = backward ? -1 : 0;
  const std::int64_t highest = backward ? size - 1 : size;
  const auto clamp = [&](const Value& bound, std::int64_t otherwise) {
    if (bound.is_none()) return otherwise;
    const std::int64_t index = bound.as_int() < 0 ? bound.as_int() + size : bound.as_int();
    return std::clamp(index, lowest, highest);
  };
  range.start = clamp(start, backward ? highest : lowest);
  range.end = clamp(stop, backward ? lowest : highest);
  const std::int64_t distance = backward ? range.start - range.end : range.end - range.start;
  // A step beyond the size visits one item; keeps -step in range too.
  range.step = std::clamp(range.step, -size - 1, size + 1);
  const std::int64_t stride = backward ? -range.step : range.step;
  range.count = distance <= 0 ? 0 : (distance - 1) / stride + 1;
  return true;
}

Value slice_string(Runtime& runtime, const StringData& string, const SliceRange& range) {
  if (!runtime.step_bytes(string.text.size())) return {};
  const auto start = static_cast<std::size_t>(std::max<std::int64_t>(range.start, 0));
  if (range.step == 1) {
    const std::size_t begin = byte_offset(string.text, start, string.is_ascii());
    const std::string_view rest = std::string_view(string.text).substr(begin);
    const std::size_t length =
        byte_offset(rest, static_cast<std::size_t>(range.count), string.is_ascii());
    return runtime.make_string(std::string(rest.substr(0, length)), string.safe);
  }
  const std::vector<char32_t> all = decode_utf8(string.text);
  std::string out;
  std::int64_t index = range.start;
  for (std::int64_t i = 0; i < range.count; ++i, index += range.step) {
    append_utf8(out, all[static_cast<std::size_t>(index)]);
  }
  return runtime.make_string(std::move(out), string.safe);
}

Value slice_range(Runtime& runtime, const ListData& list, const SliceRange& range) {
  std::int64_t first = 0;
  std::int64_t last = 0;
  std::int64_t stride = 0;
  if (__builtin_mul_overflow(range.start, list.step, &first) ||
      __builtin_add_overflow(first, list.start, &first) ||
      __builtin_mul_overflow(range.end, list.step, &last) ||
      __builtin_add_overflow(last, list.start, &last) ||
      __builtin_mul_overflow(list.step, range.step, &stride)) {
    return runtime.fail("a slice of a range does not fit 64 bits");
  }
  return runtime.make_range(first, last, stride);
}

}  // namespace

std::string undefined_message(const Value& value) {
  const StringData* hint = value.undefined_hint();
  return hint != nullptr ? hint->text : "a value is undefined";
}

std::string escape_html(std::string_view text) {
  std::string out;
  for (const char c : text) {
    switch (c) {
      case '&':
        out += "&amp;";
        break;
      case '<':
        out += "&lt;";
        break;
      case '>':
        out += "&gt;";
        break;
      case '\'':
        out += "&#39;";
        break;
      case '"':
        out += "&#34;";
        break;
      default:
        out += c;
    }
  }
  return out;
}

std::optional<std::int64_t> length_of(const Value& value) {
  switch (value.kind()) {
    case ValueKind::kUndefined:
      return 0;
    case ValueKind::kString:
      return static_cast<std::int64_t>(value.as_string().code_points);
    case ValueKind::kDict:
      return static_cast<std::int64_t>(value.as_dict().entries.size());
    case ValueKind::kList:
      if (value.as_list().flavour == ListFlavour::kIterator) return std::nullopt;
      return static_cast<std::int64_t>(value.as_list().items.size());
    default:
      return std::nullopt;
  }
}

bool is_iterable(const Value& value) {
  return value.is_string() || value.is_list() || value.is_dict() || value.is_undefined();
}

std::vector<Value> iterate(Runtime& runtime, const Value& value) {
  if (value.is_string()) return characters_of(runtime, value.as_string());
  std::vector<Value> items;
  if (value.is_list()) {
    ListData& list = value.as_list();
    if (!runtime.reserve_items(list.items.size())) return items;
    items.assign(list.items.begin() + static_cast<std::ptrdiff_t>(list.cursor), list.items.end());
    if (list.flavour == ListFlavour::kIterator) list.cursor = list.items.size();
  } else if (value.is_dict()) {
    if (!runtime.reserve_items(value.as_dict().entries.size())) return items;
    for (const auto& entry : value.as_dict().entries) items.push_back(entry.first);
  } else if (!value.is_undefined()) {
    runtime.fail(fmt::format("a {} cannot be iterated", type_name(value)));
  }
  return items;
}

Value get_attribute(Runtime& runtime, const Value& object, std::string_view name) {
  if (object.is_undefined()) {
    return runtime.fail(fmt::format("{}, so it has no '{}'", undefined_message(object), name));
  }
  const Value own = own_attribute(runtime, object, name);
  if (!own.is_undefined() || object.is_object()) return own;
  if (object.is_dict()) {
    if (!runtime.step()) return {};
    const Value* entry = object.as_dict().find(name);
    if (entry != nullptr) return *entry;
  }
  return no_attribute(runtime, object, name);
}

Value get_item(Runtime& runtime, const Value& object, const Value& key) {
  if (object.is_undefined()) {
    return runtime.fail(fmt::format("{}, so it has no items", undefined_message(object)));
  }
  bool found = false;
  const Value item = own_item(runtime, object, key, found);
  if (found) return item;
  if (key.is_string()) {
    const Value own = own_attribute(runtime, object, key.text());
    if (!own.is_undefined()) return own;
  }
  return no_attribute(runtime, object, to_str(runtime, key));
}

Value slice(Runtime& runtime, const Value& object, const Value& start, const Value& stop,
            const Value& step) {
  if (object.is_undefined()) return runtime.fail(undefined_message(object));
  const bool is_string = object.is_string();
  if (!is_string && !(object.is_list() && is_indexable(object.as_list()))) {
    return runtime.fail(fmt::format("a {} cannot be sliced", type_name(object)));
  }
  const std::int64_t size = length_of(object).value_or(0);
  SliceRange range{};
  if (!resolve_slice(runtime, size, start, stop, step, range)) return {};
  if (is_string) return slice_string(runtime, object.as_string(), range);
  const ListData& list = object.as_list();
  if (list.flavour == ListFlavour::kRange) {
    return slice_range(runtime, list, range);
  }
  std::vector<Value> items;
  std::int64_t index = range.start;
  for (std::int64_t i = 0; i < range.count; ++i, index += range.step) {
    items.push_back(list.items[static_cast<std::size_t>(index)]);
  }
  const bool is_list = list.flavour == ListFlavour::kList;
  return runtime.make_list(std::move(items), is_list ? ListFlavour::kList : ListFlavour::kTuple);
}

}  // namespace motley::jinja
