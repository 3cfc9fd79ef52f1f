#include "text/jinja_runtime.h"

#include <gtest/gtest.h>

#include "text/jinja_ops.h"
#include "text/jinja_print.h"

namespace motley::jinja {
namespace {

class JinjaRuntime : public testing::Test {
 protected:
  static JinjaLimits limits() {
    JinjaLimits made;
    made.max_steps = 10'000;
    made.max_string_bytes = 100;
    made.max_value_bytes = 10'000;
    made.max_nesting = 5;
    made.max_range_items = 10;
    return made;
  }

  Value text(std::string_view value) { return runtime_.make_string(std::string(value)); }

  Runtime runtime_{limits(), std::tm{}};
};

TEST_F(JinjaRuntime, TheFirstErrorStays) {
  runtime_.set_line(7);
  EXPECT_TRUE(runtime_.fail("first").is_undefined());
  runtime_.set_line(9);
  runtime_.fail_limit("second");
  EXPECT_EQ(runtime_.status().message(), "line 7: first");
  EXPECT_EQ(runtime_.status().code(), StatusCode::kInvalidArgument);
}

TEST_F(JinjaRuntime, NothingIsMadeAfterAnError) {
  runtime_.fail("stop");
  EXPECT_FALSE(runtime_.step());
  EXPECT_FALSE(runtime_.reserve_items(1));
  EXPECT_TRUE(text("x").is_undefined());
  EXPECT_TRUE(runtime_.make_list({}).is_undefined());
  EXPECT_TRUE(runtime_.make_dict({}).is_undefined());
  EXPECT_TRUE(runtime_.make_range(0, 3, 1).is_undefined());
  TextBuilder builder(runtime_);
  EXPECT_FALSE(builder.add("x"));
  EXPECT_FALSE(builder.add_repeated("x", 2));
  EXPECT_EQ(builder.size(), 0U);
}

TEST_F(JinjaRuntime, StepsRunOut) {
  EXPECT_TRUE(runtime_.step(10'000));
  EXPECT_FALSE(runtime_.step());
  EXPECT_EQ(runtime_.status().code(), StatusCode::kResourceExhausted);
}

TEST_F(JinjaRuntime, HugeCountsDoNotWrap) {
  EXPECT_FALSE(runtime_.step(std::numeric_limits<std::int64_t>::max()));
  Runtime other(limits(), std::tm{});
  EXPECT_FALSE(other.reserve_items(std::numeric_limits<std::size_t>::max()));
}

TEST_F(JinjaRuntime, StringsKnowTheirLength) {
  const Value value = text("aé漢🙂");
  EXPECT_EQ(value.as_string().code_points, 4U);
  EXPECT_FALSE(value.as_string().is_ascii());
  EXPECT_TRUE(text("abc").as_string().is_ascii());
}

TEST_F(JinjaRuntime, StringsHaveALimit) {
  EXPECT_TRUE(text(std::string(100, 'a')).is_string());
  EXPECT_TRUE(text(std::string(101, 'a')).is_undefined());
  EXPECT_EQ(runtime_.status().message(), "line 1: a string of 101 bytes is over the limit of 100");
}

TEST_F(JinjaRuntime, BuildersStopAtTheLimit) {
  TextBuilder builder(runtime_);
  EXPECT_TRUE(builder.add_repeated("ab", 50));
  EXPECT_FALSE(builder.add("c"));
  EXPECT_EQ(builder.size(), 100U);
  EXPECT_TRUE(runtime_.failed());
}

TEST_F(JinjaRuntime, ValuesHaveALimit) {
  std::int64_t made = 0;
  while (text(std::string(90, 'a')).is_string()) ++made;
  EXPECT_GT(made, 20);
  EXPECT_LT(made, 110);
  EXPECT_EQ(runtime_.status().message(),
            "line 1: the template makes more than 10000 bytes of values");
}

TEST_F(JinjaRuntime, NestingIsBounded) {
  Value list = runtime_.make_list({});
  for (int depth = 2; depth <= 5; ++depth) list = runtime_.make_list({list});
  EXPECT_EQ(list.as_list().depth, 5);
  EXPECT_TRUE(runtime_.make_dict({{text("k"), list}}).is_undefined());
  EXPECT_EQ(runtime_.status().message(), "line 1: values are nested more than 5 deep");
}

TEST_F(JinjaRuntime, DictsReplaceEqualKeys) {
  const Value dict = runtime_.make_dict({{Value::integer(1), text("a")},
                                         {text("k"), text("b")},
                                         {Value::boolean(true), text("c")},
                                         {Value::real(1.0), text("d")},
                                         {text("k"), text("e")}});
  EXPECT_EQ(to_str(runtime_, dict), "{1: 'd', 'k': 'e'}");
}

TEST_F(JinjaRuntime, LargeDictsFindTheirKeys) {
  std::vector<std::pair<Value, Value>> entries;
  for (int i = 0; i < 20; ++i) entries.emplace_back(text(std::to_string(i)), Value::integer(i));
  entries.emplace_back(text("7"), Value::integer(70));
  entries.emplace_back(Value::none(), Value::integer(99));
  const Value dict = runtime_.make_dict(std::move(entries));
  ASSERT_TRUE(dict.is_dict()) << runtime_.status().message();
  EXPECT_EQ(dict.as_dict().entries.size(), 21U);
  EXPECT_EQ(dict.as_dict().find("7")->as_int(), 70);
  EXPECT_EQ(dict.as_dict().find("19")->as_int(), 19);
  EXPECT_EQ(dict.as_dict().find("20"), nullptr);
  EXPECT_EQ(find_entry(runtime_, dict.as_dict(), Value::none())->as_int(), 99);
  EXPECT_EQ(find_entry(runtime_, dict.as_dict(), Value::integer(7)), nullptr);
}

TEST_F(JinjaRuntime, ListsAreNoKeys) {
  EXPECT_TRUE(runtime_.make_dict({{runtime_.make_list({}), Value::none()}}).is_undefined());
  EXPECT_EQ(runtime_.status().message(), "line 1: a list cannot be a dict key");
}

TEST_F(JinjaRuntime, RangesAtTheEdges) {
  constexpr std::int64_t kMax = std::numeric_limits<std::int64_t>::max();
  constexpr std::int64_t kMin = std::numeric_limits<std::int64_t>::min();
  EXPECT_EQ(runtime_.make_range(kMax - 2, kMax, 1).as_list().items.size(), 2U);
  EXPECT_EQ(runtime_.make_range(kMin, kMax, kMax).as_list().items.size(), 3U);
  EXPECT_EQ(runtime_.make_range(kMax, kMin, kMin).as_list().items.size(), 2U);
  EXPECT_EQ(runtime_.make_range(3, 3, 1).as_list().items.size(), 0U);
  EXPECT_EQ(runtime_.make_range(3, 1, 1).as_list().items.size(), 0U);
  EXPECT_FALSE(runtime_.failed());
  EXPECT_TRUE(runtime_.make_range(kMin, kMax, 1).is_undefined());
}

TEST_F(JinjaRuntime, IteratorsAreReadOnce) {
  const Value iterator =
      runtime_.make_list({Value::integer(1), Value::integer(2)}, ListFlavour::kIterator);
  EXPECT_TRUE(contains(runtime_, iterator, Value::integer(1)));
  EXPECT_EQ(iterate(runtime_, iterator).size(), 1U);
  EXPECT_EQ(iterate(runtime_, iterator).size(), 0U);
  EXPECT_EQ(length_of(iterator), std::nullopt);
}

TEST_F(JinjaRuntime, UndefinedRemembersWhy) {
  const Value value = runtime_.make_undefined("'x' is undefined");
  EXPECT_EQ(undefined_message(value), "'x' is undefined");
  EXPECT_EQ(undefined_message(Value()), "a value is undefined");
  EXPECT_TRUE(binary(runtime_, Operator::kAdd, value, Value::integer(1)).is_undefined());
  EXPECT_EQ(runtime_.status().message(), "line 1: 'x' is undefined");
}

}  // namespace
}  // namespace motley::jinja
