// Properties of the template language, each against a plain second implementation.
#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "text/jinja_test_util.h"
#include "text/jinja_unicode.h"

namespace motley::jinja {
namespace {

using Json = nlohmann::ordered_json;

std::string render_with(std::string_view source, const Json& context) {
  return render(source, context.dump());
}

std::vector<int> ints() {
  return *rc::gen::container<std::vector<int>>(rc::gen::inRange(-5, 6));
}

// Short texts over a few characters, so that searches find something.
std::string letters() {
  return encode_utf8(*rc::gen::container<std::vector<char32_t>>(
      rc::gen::elementOf(std::vector<char32_t>{'a', 'b', ' ', U'é', U'漢', '\n', ','})));
}

Json maybe_index() {
  return *rc::gen::inRange(0, 4) == 0 ? Json() : Json(*rc::gen::inRange(-8, 9));
}

// Python's slice by its definition: walk from the first index in steps while inside.
std::vector<int> naive_slice(const std::vector<int>& list, const Json& start, const Json& stop,
                             int step) {
  const int size = static_cast<int>(list.size());
  const auto bound = [&](const Json& value, int otherwise) {
    if (value.is_null()) return otherwise;
    const int at = value.get<int>() < 0 ? value.get<int>() + size : value.get<int>();
    return std::clamp(at, step < 0 ? -1 : 0, step < 0 ? size - 1 : size);
  };
  const int last = bound(stop, step < 0 ? -1 : size);
  std::vector<int> out;
  for (int i = bound(start, step < 0 ? size - 1 : 0); step < 0 ? i > last : i < last; i += step) {
    out.push_back(list[static_cast<std::size_t>(i)]);
  }
  return out;
}

RC_GTEST_PROP(JinjaProperty, SlicesOfLists, ()) {
  const std::vector<int> list = ints();
  const Json start = maybe_index();
  const Json stop = maybe_index();
  const int step = *rc::gen::elementOf(std::vector<int>{-3, -2, -1, 1, 2, 3});
  const Json context = {{"l", list}, {"a", start}, {"b", stop}, {"c", step}};
  RC_ASSERT(render_with("{{ l[a:b:c]|tojson(separators=(',', ':')) }}", context) ==
            Json(naive_slice(list, start, stop, step)).dump());
}

RC_GTEST_PROP(JinjaProperty, SlicesOfTextsAreSlicesOfTheirCharacters, ()) {
  const Json context = {{"s", letters()},
                        {"a", maybe_index()},
                        {"b", maybe_index()},
                        {"c", *rc::gen::elementOf(std::vector<int>{-2, -1, 1, 2})}};
  RC_ASSERT(render_with("{{ s[a:b:c] == (s|list)[a:b:c]|join }}", context) == "True");
}

RC_GTEST_PROP(JinjaProperty, DivisionAndRemainderFit, ()) {
  const Json context = {{"a", *rc::gen::arbitrary<std::int32_t>()},
                        {"b", *rc::gen::nonZero<std::int32_t>()}};
  RC_ASSERT(render_with("{{ (a // b) * b + a % b == a }}{{ (a % b) * b >= 0 }}", context) ==
            "TrueTrue");
}

RC_GTEST_PROP(JinjaProperty, JoiningUndoesSplitting, ()) {
  const Json context = {
      {"s", letters()},
      {"by", *rc::gen::elementOf(std::vector<std::string>{"a", ",", "ab", "é", " "})}};
  RC_ASSERT(render_with("{{ by.join(s.split(by)) == s and by.join(s.rsplit(by, 2)) == s and "
                        "s.partition(by)|join == s and s.rpartition(by)|join == s and "
                        "s.splitlines(true)|join == s }}",
                        context) == "True");
}

RC_GTEST_PROP(JinjaProperty, ReplacingIsSplittingAndJoining, ()) {
  const Json context = {{"s", letters()},
                        {"a", *rc::gen::elementOf(std::vector<std::string>{"a", "b,", "漢", "\n"})},
                        {"b", letters()}};
  RC_ASSERT(render_with("{{ s.replace(a, b) == b.join(s.split(a)) }}"
                        "{{ s.count(a) == s.split(a)|length - 1 }}"
                        "{{ (a in s) == (s.find(a) >= 0) }}",
                        context) == "TrueTrueTrue");
}

RC_GTEST_PROP(JinjaProperty, FindingAgreesWithSlicing, ()) {
  const Json context = {{"s", letters()},
                        {"a", *rc::gen::elementOf(std::vector<std::string>{"a", "é", "b", ""})}};
  RC_ASSERT(render_with("{% set at = s.find(a) %}{% set last = s.rfind(a) %}"
                        "{{ at < 0 or s[at:].startswith(a) }}"
                        "{{ last < 0 or s[:last + a|length].endswith(a) }}{{ at <= last }}",
                        context) == "TrueTrueTrue");
}

RC_GTEST_PROP(JinjaProperty, StrippingLeavesNothingToStrip, ()) {
  const Json context = {{"s", letters()}};
  RC_ASSERT(render_with("{% set t = s.strip() %}{{ t.strip() == t and t in s and "
                        "s.lstrip().rstrip() == t and s|trim == t }}",
                        context) == "True");
}

RC_GTEST_PROP(JinjaProperty, SortingIsStableSorting, ()) {
  std::vector<Json> rows;
  for (const int key : ints()) rows.push_back({{"k", key}, {"i", rows.size()}});
  std::vector<Json> sorted = rows;
  std::stable_sort(sorted.begin(), sorted.end(),
                   [](const Json& a, const Json& b) { return a["k"] < b["k"]; });
  const Json context = {{"rows", rows}};
  RC_ASSERT(Json::parse(render_with("{{ rows|sort(attribute='k')|tojson }}", context)) ==
            Json(sorted));
  std::stable_sort(sorted.begin(), sorted.end(),
                   [](const Json& a, const Json& b) { return b["k"] < a["k"]; });
  std::vector<Json> falling = rows;
  std::stable_sort(falling.begin(), falling.end(),
                   [](const Json& a, const Json& b) { return b["k"] < a["k"]; });
  RC_ASSERT(Json::parse(render_with("{{ rows|sort(true, attribute='k')|tojson }}", context)) ==
            Json(falling));
}

RC_GTEST_PROP(JinjaProperty, BatchesAndGroupsKeepAllItems, ()) {
  const Json context = {{"l", ints()}, {"n", *rc::gen::inRange(1, 5)}};
  RC_ASSERT(render_with("{{ l|batch(n)|sum(start=[]) == l and l|slice(n)|sum(start=[]) == l }}",
                        context) == "True");
  RC_ASSERT(
      render_with("{{ l|sort == l|map('string')|map('int')|sort }}"
                  "{{ l|unique|list|length <= l|length }}"
                  "{{ l|select('odd')|list|length + l|reject('odd')|list|length == l|length }}",
                  context) == "TrueTrueTrue");
}

Json any_json(int depth) {
  switch (*rc::gen::inRange(0, depth > 0 ? 7 : 5)) {
    case 0:
      return nullptr;
    case 1:
      return *rc::gen::arbitrary<bool>();
    case 2:
      return *rc::gen::arbitrary<std::int64_t>();
    case 3:
      return *rc::gen::arbitrary<double>();
    case 4:
      return letters();
    case 5: {
      Json list = Json::array();
      for (int i = *rc::gen::inRange(0, 4); i > 0; --i) list.push_back(any_json(depth - 1));
      return list;
    }
    default: {
      Json object = Json::object();
      for (int i = *rc::gen::inRange(0, 4); i > 0; --i) object[letters()] = any_json(depth - 1);
      return object;
    }
  }
}

RC_GTEST_PROP(JinjaProperty, JsonComesBack, ()) {
  const Json value = any_json(3);
  const Json context = {{"x", value}};
  RC_ASSERT(Json::parse(render_with("{{ x|tojson }}", context)) == value);
  RC_ASSERT(Json::parse(render_with("{{ x|tojson(true, 2) }}", context)) == value);
}

RC_GTEST_PROP(JinjaProperty, PlainTextIsCopied, ()) {
  std::string text = encode_utf8(*rc::gen::container<std::vector<char32_t>>(
      rc::gen::elementOf(std::vector<char32_t>{'a', '%', '}', '#', U'é', ' ', '-'})));
  RC_ASSERT(render(text) == text);
  RC_ASSERT(render("{% raw %}" + text + "{% endraw %}") == text);
}

}  // namespace
}  // namespace motley::jinja
