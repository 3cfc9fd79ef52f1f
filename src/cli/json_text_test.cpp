#include "cli/json_text.h"

#include <gtest/gtest.h>

namespace motley {
namespace {

using Json = nlohmann::ordered_json;

TEST(JsonText, ErrorsNameTheTextAndThePlace) {
  EXPECT_EQ(parse_json_text("{\"a\":1,}", "--data").status().message(),
            "--data: not valid JSON at byte 8");
  EXPECT_EQ(parse_json_text("", "standard input").status().message(),
            "standard input: not valid JSON at byte 1");
  EXPECT_EQ(parse_json_text("1 2", "f").status().code(), StatusCode::kCorrupt);
  EXPECT_FALSE(parse_json_text("\"\xff\"", "f").is_ok());
  EXPECT_FALSE(parse_json_text("1e999", "f").is_ok());
}

TEST(JsonText, MembersKeepTheirOrder) {
  const auto json = parse_json_text(R"({"z":1,"a":[true,null]})", "f");
  ASSERT_TRUE(json.is_ok());
  EXPECT_EQ(dump_json(*json), "{\n  \"z\": 1,\n  \"a\": [\n    true,\n    null\n  ]\n}\n");
}

// The bytes of a token need not be UTF-8; the report still is.
TEST(JsonText, InvalidUtf8IsReplaced) {
  Json json = Json::object();
  json["text"] = "a\xC3";
  const std::string text = dump_json(json);
  EXPECT_EQ(text, "{\n  \"text\": \"a\xEF\xBF\xBD\"\n}\n");
  EXPECT_TRUE(parse_json_text(text, "f").is_ok());
}

}  // namespace
}  // namespace motley
