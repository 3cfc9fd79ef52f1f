#include "spec/config_json.h"

#include <gmock/gmock.h>

namespace motley {
namespace {

using ::testing::HasSubstr;

Result<ConfigJson> parse(std::string_view text) {
  return ConfigJson::parse(text, "d/config.json");
}

struct BadJson {
  const char* text;
  const char* message;
};
class BadConfigJson : public ::testing::TestWithParam<BadJson> {};

TEST_P(BadConfigJson, IsRefused) {
  const auto config = parse(GetParam().text);
  ASSERT_FALSE(config.is_ok());
  EXPECT_THAT(config.status().message(), HasSubstr(GetParam().message));
  EXPECT_THAT(config.status().message(), HasSubstr("d/config.json"));
  EXPECT_EQ(config.status().message().find('\n'), std::string::npos);
}

INSTANTIATE_TEST_SUITE_P(
    Texts, BadConfigJson,
    ::testing::Values(
        BadJson{"", "not valid JSON at byte 1"}, BadJson{"[]", "must be an object"},
        BadJson{"{\"a\":1,}", "not valid JSON"}, BadJson{"{\"a\":\n\tNaN}", "not valid"},
        BadJson{"{\"a\":1} {}", "not valid JSON"}, BadJson{"\xEF\xBB\xBF{}", "byte order mark"},
        BadJson{"{\"a\":\"\xC3\x28\"}", "not valid JSON"},
        BadJson{"{\"a\":\"\xED\xA0\x80\"}", "not valid JSON"}, BadJson{"{/*c*/}", "not valid JSON"},
        BadJson{"{\"a\":1e999}", "not valid JSON"},
        BadJson{"{\"a\":{\"b\":1,\"b\":2}}", "duplicate name \"b\""}));

TEST(ConfigJson, LimitsDepthAndSize) {
  const std::string deep = "{\"a\":" + std::string(100'000, '[');
  EXPECT_THAT(parse(deep).status().message(), HasSubstr("nested deeper than 32"));
  const auto large = ConfigJson::parse("{\"a\":12345}", "f", {.max_bytes = 8});
  EXPECT_THAT(large.status().message(), HasSubstr("11 bytes exceeds the limit of 8"));
  EXPECT_TRUE(parse("{\"a\":" + std::string(31, '[') + std::string(31, ']') + "}").is_ok());
}

TEST(ConfigJson, TypedGetters) {
  const auto config =
      parse(R"({"n":7,"x":0.5,"t":"silu","b":true,"o":{"n":-3},"l":["a","b"],"i":[1,2],"z":null,)"
            R"("big":18446744073709551615})");
  ASSERT_TRUE(config.is_ok()) << config.status().message();
  const ConfigObject root = config->root();
  EXPECT_EQ(*root.integer("n", 1, 10), 7);
  EXPECT_EQ(*root.number("n", 1, 10), 7.0);
  EXPECT_EQ(*root.number("x", 0, 1), 0.5);
  EXPECT_EQ(*root.text("t"), "silu");
  EXPECT_EQ(*root.boolean_or("b", false), true);
  EXPECT_EQ(*root.object("o")->integer("n", -5, 5), -3);
  EXPECT_EQ(*root.texts("l"), (std::vector<std::string>{"a", "b"}));
  EXPECT_EQ(*root.integers("i", 0, 9), (std::vector<int64_t>{1, 2}));
  EXPECT_EQ(*root.integers("n", 0, 9), std::vector<int64_t>{7});
  EXPECT_FALSE(root.has("z"));
  EXPECT_EQ(*root.integer_or("z", 4, 0, 9), 4);
  EXPECT_TRUE(root.texts("absent")->empty());

  EXPECT_EQ(root.integer("n", 8, 10).status().message(),
            "d/config.json: n: must be an integer from 8 to 10, not 7");
  EXPECT_EQ(root.object("o")->integer("n", 0, 5).status().message(),
            "d/config.json: o.n: must be an integer from 0 to 5, not -3");
  EXPECT_EQ(root.integer("z", 0, 1).status().message(), "d/config.json: z: is missing");
  EXPECT_FALSE(root.integer("x", 0, 1).is_ok());
  EXPECT_FALSE(root.integer("big", 0, INT64_MAX).is_ok());
  EXPECT_FALSE(root.text("n").is_ok());
  EXPECT_FALSE(root.boolean_or("n", true).is_ok());
  EXPECT_FALSE(root.texts("i").is_ok());
  EXPECT_FALSE(root.integers("l", 0, 9).is_ok());
  EXPECT_FALSE(root.object("l").is_ok());
  EXPECT_FALSE(root.number("t", 0, 1).is_ok());
}

TEST(ConfigJson, QuotesAnything) {
  EXPECT_EQ(json_quote("a\"\\\n"), R"("a\"\\\n")");
  EXPECT_EQ(json_quote("\xFF"), "\"\xEF\xBF\xBD\"");
  EXPECT_EQ(json_excerpt("a\a"), R"("a\u0007")");
  EXPECT_EQ(json_excerpt(std::string(9'000, 'x')), "\"" + std::string(200, 'x') + "...\"");
}

}  // namespace
}  // namespace motley
