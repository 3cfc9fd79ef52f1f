// Filters over sequences: ends, order, grouping, joining.
#include <fmt/format.h>

#include <algorithm>

#include "text/jinja_attribute_path.h"
#include "text/jinja_native.h"
#include "text/jinja_ops.h"
#include "text/jinja_print.h"
#include "text/jinja_unicode.h"

namespace motley::jinja {
namespace {

Value first(Runtime& runtime, const Value& self, CallArguments&) {
  if (self.is_list() && self.as_list().flavour == ListFlavour::kIterator) {
    ListData& list = self.as_list();
    if (list.cursor < list.items.size()) return list.items[list.cursor++];
    return runtime.make_undefined("a sequence is empty and has no first item");
  }
  if (self.is_string() && self.as_string().code_points > 0) {
    const Value item = get_item(runtime, self, Value::integer(0));
    return item.is_string() ? runtime.make_string(item.as_string().text) : item;
  }
  const std::vector<Value> items = iterate(runtime, self);
  if (items.empty()) return runtime.make_undefined("a sequence is empty and has no first item");
  return items.front();
}

Value last(Runtime& runtime, const Value& self, CallArguments&) {
  if (self.is_list() && self.as_list().flavour == ListFlavour::kIterator) {
    return runtime.fail("an iterator has no last item, use the list filter first");
  }
  const std::vector<Value> items = iterate(runtime, self);
  if (items.empty()) return runtime.make_undefined("a sequence is empty and has no last item");
  return items.back();
}

Value list(Runtime& runtime, const Value& self, CallArguments&) {
  return runtime.make_list(iterate(runtime, self));
}

Value items(Runtime& runtime, const Value& self, CallArguments&) {
  if (self.is_undefined()) return runtime.make_list({}, ListFlavour::kIterator);
  if (!self.is_dict()) {
    return runtime.fail(fmt::format("filter 'items' needs a dict, not a {}", type_name(self)));
  }
  std::vector<Value> pairs;
  for (const auto& [key, value] : self.as_dict().entries) {
    pairs.push_back(runtime.make_list({key, value}, ListFlavour::kTuple));
    if (runtime.failed()) return {};
  }
  return runtime.make_list(std::move(pairs), ListFlavour::kIterator);
}

Value reverse(Runtime& runtime, const Value& self, CallArguments&) {
  if (self.is_string()) {
    if (!runtime.step_bytes(self.text().size() * 4)) return {};
    std::vector<char32_t> characters = decode_utf8(self.text());
    std::reverse(characters.begin(), characters.end());
    return runtime.make_string(encode_utf8(characters), self.as_string().safe);
  }
  const bool is_iterator = self.is_list() && self.as_list().flavour == ListFlavour::kIterator;
  std::vector<Value> reversed = iterate(runtime, self);
  std::reverse(reversed.begin(), reversed.end());
  return runtime.make_list(std::move(reversed),
                           is_iterator ? ListFlavour::kList : ListFlavour::kIterator);
}

Value join(Runtime& runtime, const Value& self, CallArguments& arguments) {
  const AttributePath path(runtime, argument(arguments, 1));
  const Value& separator = argument(arguments, 0);
  const std::string between = separator.is_missing() ? "" : to_str(runtime, separator);
  TextBuilder out(runtime);
  bool is_first = true;
  for (const Value& item : iterate(runtime, self)) {
    if (!runtime.step()) return {};
    if (!is_first) out.add(between);
    is_first = false;
    append_str(runtime, out, path.of(item));
  }
  return out.finish();
}

// Items with their sort keys, in order; stable in both directions as Python's sorted().
struct Keyed {
  Value key;
  Value item;
};

void sort_keyed(Runtime& runtime, std::vector<Keyed>& keyed, bool reverse_order) {
  std::stable_sort(keyed.begin(), keyed.end(), [&](const Keyed& a, const Keyed& b) {
    if (runtime.failed()) return false;
    return reverse_order ? less(runtime, b.key, a.key) : less(runtime, a.key, b.key);
  });
}

std::vector<Keyed> with_keys(Runtime& runtime, const Value& self, const AttributePath& path,
                             bool case_sensitive, const Value& otherwise = Value::missing()) {
  std::vector<Keyed> keyed;
  for (const Value& item : iterate(runtime, self)) {
    Value key = path.of(item, otherwise);
    if (!case_sensitive) {
      if (key.is_list()) {
        std::vector<Value> parts;
        for (const Value& part : key.as_list().items) parts.push_back(ignore_case(runtime, part));
        key = runtime.make_list(std::move(parts), key.as_list().flavour);
      } else {
        key = ignore_case(runtime, key);
      }
    }
    keyed.push_back({key, item});
    if (runtime.failed()) return {};
  }
  return keyed;
}

Value sort(Runtime& runtime, const Value& self, CallArguments& arguments) {
  const AttributePath path(runtime, argument(arguments, 2), true);
  auto keyed = with_keys(runtime, self, path, truthy(argument(arguments, 1)));
  // Jinja2 wraps each key in a list, so equal keys need no order of their own.
  for (Keyed& entry : keyed) entry.key = runtime.make_list({entry.key});
  sort_keyed(runtime, keyed, truthy(argument(arguments, 0)));
  std::vector<Value> sorted;
  for (const Keyed& entry : keyed) sorted.push_back(entry.item);
  return runtime.make_list(std::move(sorted));
}

Value dict_sort(Runtime& runtime, const Value& self, CallArguments& arguments) {
  if (!self.is_dict()) {
    return runtime.fail(fmt::format("filter 'dictsort' needs a dict, not a {}", type_name(self)));
  }
  const std::string by = string_argument(runtime, argument(arguments, 1), "key");
  if (by != "key" && by != "value") return runtime.fail("dictsort sorts by 'key' or 'value'");
  std::vector<Keyed> keyed;
  for (const auto& [key, value] : self.as_dict().entries) {
    const Value& chosen = by == "key" ? key : value;
    keyed.push_back({truthy(argument(arguments, 0)) ? chosen : ignore_case(runtime, chosen),
                     runtime.make_list({key, value}, ListFlavour::kTuple)});
    if (runtime.failed()) return {};
  }
  sort_keyed(runtime, keyed, truthy(argument(arguments, 2)));
  std::vector<Value> sorted;
  for (const Keyed& entry : keyed) sorted.push_back(entry.item);
  return runtime.make_list(std::move(sorted));
}

Value unique(Runtime& runtime, const Value& self, CallArguments& arguments) {
  const AttributePath path(runtime, argument(arguments, 1));
  std::vector<Value> seen;
  std::vector<Value> kept;
  for (const Keyed& entry : with_keys(runtime, self, path, truthy(argument(arguments, 0)))) {
    if (!is_hashable(entry.key)) {
      return runtime.fail(fmt::format("filter 'unique' cannot compare a {}", type_name(entry.key)));
    }
    const bool known = std::any_of(seen.begin(), seen.end(), [&](const Value& other) {
      return equals(runtime, other, entry.key);
    });
    if (runtime.failed()) return {};
    if (known) continue;
    seen.push_back(entry.key);
    kept.push_back(entry.item);
  }
  return runtime.make_list(std::move(kept), ListFlavour::kIterator);
}

Value extreme(Runtime& runtime, const Value& self, CallArguments& arguments, bool largest) {
  const AttributePath path(runtime, argument(arguments, 1));
  const auto keyed = with_keys(runtime, self, path, truthy(argument(arguments, 0)));
  if (keyed.empty()) return runtime.make_undefined("a sequence is empty and has no extreme");
  const Keyed* best = &keyed.front();
  for (std::size_t i = 1; i < keyed.size(); ++i) {
    const bool better =
        largest ? less(runtime, best->key, keyed[i].key) : less(runtime, keyed[i].key, best->key);
    if (better) best = &keyed[i];
  }
  return best->item;
}

Value minimum(Runtime& runtime, const Value& self, CallArguments& arguments) {
  return extreme(runtime, self, arguments, false);
}

Value maximum(Runtime& runtime, const Value& self, CallArguments& arguments) {
  return extreme(runtime, self, arguments, true);
}

Value sum(Runtime& runtime, const Value& self, CallArguments& arguments) {
  const AttributePath path(runtime, argument(arguments, 0));
  Value total = argument(arguments, 1).is_missing() ? Value::integer(0) : argument(arguments, 1);
  if (total.is_string()) return runtime.fail("filter 'sum' does not add strings, use join");
  for (const Value& item : iterate(runtime, self)) {
    total = binary(runtime, Operator::kAdd, total, path.of(item));
    if (runtime.failed()) return {};
  }
  return total;
}

Value batch(Runtime& runtime, const Value& self, CallArguments& arguments) {
  const std::int64_t count = integer_argument(runtime, argument(arguments, 0), 1);
  const Value& fill = argument(arguments, 1);
  const bool fills = !fill.is_missing() && !fill.is_none();
  std::vector<Value> rows;
  std::vector<Value> row;
  for (const Value& item : iterate(runtime, self)) {
    if (!runtime.step()) return {};
    if (static_cast<std::int64_t>(row.size()) == count) {
      rows.push_back(runtime.make_list(std::exchange(row, {})));
    }
    row.push_back(item);
  }
  if (!row.empty()) {
    const std::int64_t room = count - static_cast<std::int64_t>(row.size());
    if (fills && room > 0) {
      if (!runtime.reserve_items(static_cast<std::size_t>(room))) return {};
      row.resize(static_cast<std::size_t>(count), fill);
    }
    rows.push_back(runtime.make_list(std::move(row)));
  }
  return runtime.make_list(std::move(rows), ListFlavour::kIterator);
}

Value slices(Runtime& runtime, const Value& self, CallArguments& arguments) {
  const std::int64_t count = integer_argument(runtime, argument(arguments, 0), 1);
  const Value& fill = argument(arguments, 1);
  const std::vector<Value> all = iterate(runtime, self);
  if (count <= 0) return runtime.fail("filter 'slice' needs a positive number of slices");
  if (!runtime.reserve_items(static_cast<std::size_t>(count))) return {};
  const auto size = static_cast<std::int64_t>(all.size());
  std::vector<Value> rows;
  std::int64_t begin = 0;
  for (std::int64_t i = 0; i < count && runtime.step(); ++i) {
    const bool has_extra = i < size % count;
    const std::int64_t end = begin + size / count + (has_extra ? 1 : 0);
    std::vector<Value> row(all.begin() + begin, all.begin() + end);
    if (!fill.is_missing() && !fill.is_none() && !has_extra) row.push_back(fill);
    rows.push_back(runtime.make_list(std::move(row)));
    begin = end;
  }
  return runtime.make_list(std::move(rows), ListFlavour::kIterator);
}

Value group_by(Runtime& runtime, const Value& self, CallArguments& arguments) {
  const AttributePath path(runtime, argument(arguments, 0));
  const Value& otherwise = argument(arguments, 1);
  auto keyed = with_keys(runtime, self, path, truthy(argument(arguments, 2)), otherwise);
  sort_keyed(runtime, keyed, false);
  std::vector<Value> groups;
  for (std::size_t begin = 0; begin < keyed.size();) {
    std::size_t end = begin;
    std::vector<Value> members;
    while (end < keyed.size() && equals(runtime, keyed[begin].key, keyed[end].key)) {
      members.push_back(keyed[end++].item);
    }
    if (runtime.failed()) return {};
    const Value name = path.of(keyed[begin].item, otherwise);
    // A key that does not equal itself (nan) still makes a group of one.
    end = std::max(end, begin + 1);
    groups.push_back(
        runtime.make_list({name, runtime.make_list(std::move(members))}, ListFlavour::kGroup));
    begin = end;
  }
  return runtime.make_list(std::move(groups));
}

constexpr NativeDefinition kFilters[] = {
    {"first", first},
    {"last", last},
    {"list", list},
    {"items", items},
    {"reverse", reverse},
    {"join", join, 0, {"d", "attribute"}},
    {"sort", sort, 0, {"reverse", "case_sensitive", "attribute"}},
    {"dictsort", dict_sort, 0, {"case_sensitive", "by", "reverse"}},
    {"unique", unique, 0, {"case_sensitive", "attribute"}},
    {"min", minimum, 0, {"case_sensitive", "attribute"}},
    {"max", maximum, 0, {"case_sensitive", "attribute"}},
    {"sum", sum, 0, {"attribute", "start"}},
    {"batch", batch, 1, {"linecount", "fill_with"}},
    {"slice", slices, 1, {"slices", "fill_with"}},
    {"groupby", group_by, 1, {"attribute", "default", "case_sensitive"}},
};

}  // namespace

std::span<const NativeDefinition> list_filters() {
  return kFilters;
}

}  // namespace motley::jinja
