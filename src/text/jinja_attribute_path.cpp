#include "text/jinja_attribute_path.h"

#include "text/jinja_number.h"
#include "text/jinja_ops.h"
#include "text/jinja_unicode.h"

namespace motley::jinja {
namespace {

bool all_digits(std::string_view text) {
  return !text.empty() && text.find_first_not_of("0123456789") == std::string_view::npos;
}

std::vector<Value> split_path(Runtime& runtime, std::string_view text) {
  std::vector<Value> path;
  while (runtime.step()) {
    const std::size_t dot = text.find('.');
    const std::string_view part = text.substr(0, dot);
    const auto index = all_digits(part) ? parse_integer(part, 10) : std::nullopt;
    path.push_back(index ? Value::integer(*index) : runtime.make_string(std::string(part)));
    if (dot == std::string_view::npos) break;
    text.remove_prefix(dot + 1);
  }
  return path;
}

}  // namespace

AttributePath::AttributePath(Runtime& runtime, const Value& attribute, bool allow_several)
    : runtime_(runtime) {
  if (attribute.is_missing() || attribute.is_none()) return;
  if (!attribute.is_string()) {
    paths_.push_back({attribute});
    return;
  }
  std::string_view rest = attribute.text();
  while (runtime.step()) {
    const std::size_t comma = allow_several ? rest.find(',') : std::string_view::npos;
    paths_.push_back(split_path(runtime, rest.substr(0, comma)));
    if (comma == std::string_view::npos) break;
    rest.remove_prefix(comma + 1);
  }
}

Value AttributePath::follow(const std::vector<Value>& path, Value item,
                            const Value& otherwise) const {
  for (const Value& part : path) {
    item = get_item(runtime_, item, part);
    if (item.is_undefined() && !otherwise.is_missing() && !otherwise.is_none()) item = otherwise;
  }
  return item;
}

Value AttributePath::of(const Value& item, const Value& otherwise) const {
  if (!runtime_.step()) return {};
  if (paths_.empty()) return item;
  if (paths_.size() == 1) return follow(paths_[0], item, otherwise);
  std::vector<Value> values;
  for (const auto& path : paths_) values.push_back(follow(path, item, otherwise));
  return runtime_.make_list(std::move(values));
}

Value ignore_case(Runtime& runtime, const Value& value) {
  if (!value.is_string()) return value;
  if (!runtime.step_bytes(value.text().size() * 4)) return {};
  return runtime.make_string(to_lower(value.text()));
}

}  // namespace motley::jinja
