#include "text/jinja_runtime.h"

#include <fmt/format.h>

#include <algorithm>

#include "text/jinja_error.h"
#include "text/jinja_ops.h"
#include "text/jinja_unicode.h"

namespace motley::jinja {
namespace {

constexpr std::size_t kIndexedDictSize = 8;

int depth_of(const Value& value) {
  if (value.is_list()) return value.as_list().depth;
  if (value.is_dict()) return value.as_dict().depth;
  return 0;
}

}  // namespace

Status Runtime::status() const {
  return error_ ? *error_ : Status::ok();
}

Value Runtime::record(StatusCode code, std::string message) {
  if (!error_) error_ = Status(code, error_line(line_, message));
  return {};
}

Value Runtime::fail(std::string message) {
  return record(StatusCode::kInvalidArgument, std::move(message));
}

Value Runtime::fail_limit(std::string message) {
  return record(StatusCode::kResourceExhausted, std::move(message));
}

bool Runtime::step(std::int64_t count) {
  if (failed()) return false;
  // Compared by subtraction: a count can be as large as a 64-bit range.
  if (count > limits_.max_steps - steps_) {
    fail_limit(fmt::format("the template takes more than {} steps", limits_.max_steps));
    return false;
  }
  steps_ += count;
  return true;
}

bool Runtime::charge(std::size_t bytes) {
  if (failed()) return false;
  if (bytes > limits_.max_value_bytes - value_bytes_) {
    fail_limit(
        fmt::format("the template makes more than {} bytes of values", limits_.max_value_bytes));
    return false;
  }
  value_bytes_ += bytes;
  return true;
}

bool Runtime::reserve_items(std::size_t count) {
  if (count > limits_.max_value_bytes / sizeof(Value)) {
    fail_limit(fmt::format("a list of {} items is too long", count));
    return false;
  }
  return step(static_cast<std::int64_t>(count)) && charge(count * sizeof(Value));
}

bool Runtime::depth_allowed(int depth) {
  if (depth <= limits_.max_nesting) return true;
  fail_limit(fmt::format("values are nested more than {} deep", limits_.max_nesting));
  return false;
}

Value Runtime::make_string(std::string text, bool safe) {
  if (text.size() > limits_.max_string_bytes) {
    return fail_limit(fmt::format("a string of {} bytes is over the limit of {}", text.size(),
                                  limits_.max_string_bytes));
  }
  if (!step_bytes(text.size()) || !charge(sizeof(StringData) + text.size())) return {};
  StringData& data = strings_.emplace_back();
  data.code_points = count_code_points(text);
  data.text = std::move(text);
  data.safe = safe;
  return Value::string(&data);
}

Value Runtime::make_undefined(std::string hint) {
  const Value text = make_string(std::move(hint));
  return Value::undefined(text.is_string() ? &text.as_string() : nullptr);
}

Value Runtime::make_list(std::vector<Value> items, ListFlavour flavour) {
  int depth = 0;
  for (const Value& item : items) depth = std::max(depth, depth_of(item));
  if (!depth_allowed(depth + 1) || !reserve_items(items.size()) || !charge(sizeof(ListData))) {
    return {};
  }
  ListData& data = lists_.emplace_back();
  data.flavour = flavour;
  data.depth = depth + 1;
  data.items = std::move(items);
  return Value::list(&data);
}

Value Runtime::make_range(std::int64_t start, std::int64_t stop, std::int64_t step) {
  if (step == 0) return fail("range() needs a step other than 0");
  // Unsigned arithmetic: the distance of two 64-bit numbers may not fit a signed one.
  const bool forward = step > 0;
  const auto low = static_cast<std::uint64_t>(forward ? start : stop);
  const auto high = static_cast<std::uint64_t>(forward ? stop : start);
  const std::uint64_t stride =
      forward ? static_cast<std::uint64_t>(step) : 0 - static_cast<std::uint64_t>(step);
  const bool empty = forward ? start >= stop : start <= stop;
  const std::uint64_t count = empty ? 0 : (high - low - 1) / stride + 1;
  if (count > static_cast<std::uint64_t>(limits_.max_range_items)) {
    return fail_limit(
        fmt::format("a range of {} items is over the limit of {}", count, limits_.max_range_items));
  }
  std::vector<Value> items;
  items.reserve(static_cast<std::size_t>(count));
  for (std::uint64_t i = 0; i < count; ++i) {
    const std::uint64_t item =
        static_cast<std::uint64_t>(start) + i * static_cast<std::uint64_t>(step);
    items.push_back(Value::integer(static_cast<std::int64_t>(item)));
  }
  const Value list = make_list(std::move(items), ListFlavour::kRange);
  if (!list.is_list()) return {};
  list.as_list().start = start;
  list.as_list().stop = stop;
  list.as_list().step = step;
  return list;
}

Value Runtime::make_dict(std::vector<std::pair<Value, Value>> entries) {
  DictData made;
  int depth = 0;
  const bool indexed = entries.size() > kIndexedDictSize;
  for (auto& [key, value] : entries) {
    if (!step()) return {};
    if (!is_hashable(key)) {
      return fail(fmt::format("a {} cannot be a dict key", type_name(key)));
    }
    depth = std::max({depth, depth_of(key), depth_of(value)});
    Value* known = nullptr;
    if (key.is_string()) {
      known = const_cast<Value*>(made.find(key.text()));
    } else {
      if (!step(static_cast<std::int64_t>(made.entries.size()))) return {};
      for (auto& entry : made.entries) {
        if (equals(*this, entry.first, key)) known = &entry.second;
      }
    }
    if (known != nullptr) {
      *known = value;
      continue;
    }
    if (indexed && key.is_string()) {
      made.index.emplace(key.text(), static_cast<std::uint32_t>(made.entries.size()));
    }
    made.entries.emplace_back(key, value);
  }
  const std::size_t bytes = made.entries.size() * (2 * sizeof(Value) + (indexed ? 64 : 0));
  if (!depth_allowed(depth + 1) || !charge(sizeof(DictData) + bytes)) return {};
  made.depth = depth + 1;
  return Value::dict(&dicts_.emplace_back(std::move(made)));
}

Value Runtime::adopt(std::unique_ptr<Object> object) {
  if (!charge(128)) return {};
  objects_.push_back(std::move(object));
  return Value::object(objects_.back().get());
}

bool TextBuilder::add(std::string_view text) {
  if (runtime_.failed()) return false;
  if (text.size() > runtime_.limits().max_string_bytes - text_.size()) {
    runtime_.fail_limit(
        fmt::format("a string is over the limit of {} bytes", runtime_.limits().max_string_bytes));
    return false;
  }
  text_ += text;
  return true;
}

bool TextBuilder::add_repeated(std::string_view text, std::int64_t count) {
  if (runtime_.failed()) return false;
  if (text.empty() || count <= 0) return true;
  const std::size_t room = runtime_.limits().max_string_bytes - text_.size();
  if (static_cast<std::uint64_t>(count) > room / text.size()) {
    runtime_.fail_limit(fmt::format("a string of {} times {} bytes is over the limit of {} bytes",
                                    count, text.size(), runtime_.limits().max_string_bytes));
    return false;
  }
  text_.reserve(text_.size() + text.size() * static_cast<std::size_t>(count));
  for (std::int64_t i = 0; i < count; ++i) text_ += text;
  return true;
}

}  // namespace motley::jinja
