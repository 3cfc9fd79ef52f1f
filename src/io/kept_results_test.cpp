#include "io/kept_results.h"

#include <gtest/gtest.h>

#include "support/test_files.h"

namespace motley {
namespace {

TEST(KeptResults, AreReadAsWrittenInAFolderThatIsMade) {
  const TemporaryDirectory folder;
  FaultPoints faults;
  const std::string path = folder / "a/b/kept.json";
  EXPECT_EQ(read_kept(faults, path).value(), std::nullopt);
  ASSERT_TRUE(write_kept(faults, path, "text").is_ok());
  EXPECT_EQ(read_kept(faults, path).value(), "text");
}

TEST(KeptResults, TooLargeAFileIsRefusedByName) {
  const TemporaryDirectory folder;
  FaultPoints faults;
  folder.write("kept.json", std::string(kKeptLimits.max_bytes + 1, ' '));
  const auto text = read_kept(faults, folder / "kept.json");
  EXPECT_EQ(text.status().code(), StatusCode::kCorrupt);
  EXPECT_NE(text.status().message().find("kept.json"), std::string::npos);
}

TEST(KeptResults, AnotherFormatAndListsThatAreNoneAreRefused) {
  EXPECT_FALSE(parse_kept(R"({"format": "a 2"})", "f", "a 1").is_ok());
  const auto json = parse_kept(R"({"format": "a 1", "x": [{}, {}], "y": [1], "z": 3})", "f", "a 1");
  ASSERT_TRUE(json.is_ok());
  EXPECT_EQ(object_list(json->root(), "x", 2, json->file()).value().size(), 2U);
  EXPECT_FALSE(object_list(json->root(), "x", 1, json->file()).is_ok());
  EXPECT_FALSE(object_list(json->root(), "y", 2, json->file()).is_ok());
  EXPECT_FALSE(object_list(json->root(), "z", 2, json->file()).is_ok());
}

TEST(KeptResults, TheFutureIsNotRecent) {
  EXPECT_TRUE(is_recent(unix_now_s(), 60));
  EXPECT_FALSE(is_recent(unix_now_s() - 100, 60));
  EXPECT_FALSE(is_recent(unix_now_s() + 100, 60));
  EXPECT_FALSE(is_recent(unix_now_s(), -1));
}

}  // namespace
}  // namespace motley
