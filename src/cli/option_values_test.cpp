#include "cli/option_values.h"

#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

namespace motley {
namespace {

const OptionSpec kCount = {
    .name = "count", .type = OptionType::kInteger, .default_value = "3", .least = 1, .most = 9};
const OptionSpec kShare = {.name = "share", .type = OptionType::kReal, .least = 0, .most = 1};
const OptionSpec kSize = {.name = "size", .type = OptionType::kBytes, .least = 1};
const OptionSpec kMode = {.name = "mode", .type = OptionType::kChoice, .choices = {"on", "off"}};
const OptionSpec kWord = {.name = "word", .type = OptionType::kText, .repeatable = true};
const OptionSpec kPath = {.name = "path", .type = OptionType::kFile};
const OptionSpec kQuiet = {.name = "quiet"};

std::string error_of(const OptionSpec& option, std::vector<std::string> values) {
  OptionValues set;
  return set.set(option, std::move(values), "--" + std::string(option.name)).message();
}

TEST(OptionValues, DefaultsAndGivenValues) {
  OptionValues values;
  EXPECT_FALSE(values.given(kCount));
  EXPECT_EQ(values.integer(kCount), 3);
  EXPECT_FALSE(values.flag(kQuiet));
  ASSERT_TRUE(values.set(kCount, {"9"}, "MOTLEY_COUNT").is_ok());
  ASSERT_TRUE(values.set(kQuiet, {"yes"}, "--quiet").is_ok());
  ASSERT_TRUE(values.set(kShare, {"0.25"}, "--share").is_ok());
  ASSERT_TRUE(values.set(kWord, {"a", ""}, "--word").is_ok());
  EXPECT_EQ(values.integer(kCount), 9);
  EXPECT_EQ(values.source(kCount), "MOTLEY_COUNT");
  EXPECT_TRUE(values.flag(kQuiet));
  EXPECT_EQ(values.real(kShare), 0.25);
  EXPECT_EQ(values.texts(kWord), (std::vector<std::string>{"a", ""}));
  EXPECT_TRUE(values.texts(kPath).empty());
}

TEST(OptionValues, ErrorsNameTheOptionAndWhatIsAllowed) {
  EXPECT_EQ(error_of(kCount, {"x"}), "--count needs a whole number, not \"x\"");
  EXPECT_EQ(error_of(kCount, {"4.5"}), "--count needs a whole number, not \"4.5\"");
  EXPECT_EQ(error_of(kCount, {"0"}), "--count is 0, allowed is 1 to 9");
  EXPECT_EQ(error_of(kCount, {"99999999999999999999"}),
            "--count is 99999999999999999999, allowed is 1 to 9");
  EXPECT_EQ(error_of(kCount, {"-99999999999999999999"}),
            "--count is -99999999999999999999, allowed is 1 to 9");
  EXPECT_EQ(error_of(kCount, {"-"}), "--count needs a whole number, not \"-\"");
  EXPECT_LT(error_of(kCount, {std::string(100'000, '9')}).size(), 300U);
  EXPECT_LT(error_of(kMode, {std::string(100'000, 'x')}).size(), 300U);
  EXPECT_EQ(error_of(kCount, {"1", "2"}), "--count is given 2 times");
  EXPECT_EQ(error_of(kShare, {"nan"}), "--share needs a number, not \"nan\"");
  EXPECT_EQ(error_of(kShare, {"1.5"}), "--share is 1.5, allowed is 0 to 1");
  EXPECT_EQ(error_of(kSize, {"0"}), "--size is 0, allowed is at least 1");
  EXPECT_EQ(error_of(kSize, {"4G"}), "--size needs a size such as 512MiB or 4GB, not \"4G\"");
  EXPECT_EQ(error_of(kMode, {"maybe"}), "--mode is \"maybe\", allowed is on, off");
  EXPECT_EQ(error_of(kPath, {""}), "--path needs a path");
  EXPECT_EQ(error_of(kQuiet, {"perhaps"}), "--quiet is \"perhaps\", allowed is on or off");
  EXPECT_EQ(error_of(kCount, {"\x1b[31m"}), "--count needs a whole number, not \"\\x1b[31m\"");
}

TEST(OptionValues, BytesTakeSuffixes) {
  EXPECT_EQ(parse_bytes("4096"), 4096);
  EXPECT_EQ(parse_bytes("512MiB"), 512 * 1024 * 1024);
  EXPECT_EQ(parse_bytes("4GB"), 4'000'000'000);
  EXPECT_EQ(parse_bytes("1.5KiB"), 1536);
  EXPECT_FALSE(parse_bytes("-1"));
  EXPECT_FALSE(parse_bytes("1.5"));
  EXPECT_FALSE(parse_bytes("GB"));
  EXPECT_FALSE(parse_bytes("1e30TB"));
  EXPECT_FALSE(parse_bytes(""));
}

TEST(OptionValues, ArgumentsByName) {
  OptionValues values;
  ASSERT_TRUE(values.set_argument({.name = "MODEL", .type = OptionType::kFolder}, {"a"}).is_ok());
  EXPECT_EQ(values.argument("MODEL"), "a");
  EXPECT_FALSE(values.argument("OTHER"));
  EXPECT_EQ(values.set_argument({.name = "MODEL", .type = OptionType::kFolder}, {""}).message(),
            "MODEL is empty");
  const ArgumentSpec shell{.name = "SHELL", .type = OptionType::kChoice, .choices = {"bash"}};
  EXPECT_EQ(values.set_argument(shell, {"csh"}).message(), "SHELL is \"csh\", allowed is bash");
}

RC_GTEST_PROP(OptionValues, IntegersSurviveText, (int64_t value)) {
  RC_ASSERT(parse_integer(std::to_string(value)) == value);
}

// Whatever the text, a value is either refused or readable.
RC_GTEST_PROP(OptionValues, AcceptedTextIsReadable, (const std::string& text)) {
  OptionValues values;
  if (values.set(kCount, {text}, "--count").is_ok()) {
    RC_ASSERT(values.integer(kCount) >= 1);
    RC_ASSERT(values.integer(kCount) <= 9);
  }
  if (values.set(kSize, {text}, "--size").is_ok()) RC_ASSERT(values.bytes(kSize) >= 1);
  if (values.set(kShare, {text}, "--share").is_ok()) RC_ASSERT(values.real(kShare) >= 0);
}

}  // namespace
}  // namespace motley
