#include "cli/command_line.h"

#include <gtest/gtest.h>

#include <vector>

namespace motley {
namespace {

const OptionSpec kText = {.name = "text", .letter = 'p', .type = OptionType::kText, .value = "T"};
const OptionSpec kCount = {
    .name = "count", .letter = 'n', .type = OptionType::kInteger, .value = "N"};
const OptionSpec kShift = {.name = "shift", .type = OptionType::kReal, .value = "X"};
const OptionSpec kStop = {
    .name = "stop", .type = OptionType::kText, .value = "T", .repeatable = true};
const OptionSpec kRaw = {.name = "raw"};

std::vector<VerbSpec> verbs() {
  return {
      {.name = "say",
       .arguments =
           {{.name = "MODEL", .type = OptionType::kFolder, .help = "a folder", .required = false}},
       .options = {kText, kCount, kShift, kStop, kRaw}},
      {.name = "copy",
       .arguments = {{.name = "IN", .help = "what to copy"}, {.name = "OUT", .help = "where to"}},
       .options = {{.name = "bits", .type = OptionType::kInteger, .value = "B"}}},
      {.name = "spread",
       .arguments = {{.name = "IN", .help = "what", .required = false},
                     {.name = "OUT", .help = "where", .required = false, .repeatable = true}},
       .options = {kStop, kRaw}}};
}

Result<ParsedLine> parse(size_t verb, const std::vector<std::string>& words) {
  static const std::vector<VerbSpec> all = verbs();
  return parse_command_line(all[verb], all, words);
}

std::string error_of(size_t verb, const std::vector<std::string>& words) {
  return parse(verb, words).status().message();
}

TEST(CommandLine, TakesOptionsInAllSpellings) {
  const auto line = parse(0, {"-p", "hello", "--count=7", "dir", "--raw", "--shift", "-1.5"});
  ASSERT_TRUE(line.is_ok()) << line.status().message();
  EXPECT_EQ(line->values.text(kText), "hello");
  EXPECT_EQ(line->values.integer(kCount), 7);
  EXPECT_EQ(line->values.real(kShift), -1.5);
  EXPECT_TRUE(line->values.flag(kRaw));
  EXPECT_EQ(line->values.argument("MODEL"), "dir");
  EXPECT_FALSE(line->wants_help);
}

// The text of a prompt must arrive exactly, whatever the library thinks of brackets and dashes.
TEST(CommandLine, TextArrivesAsItStands) {
  for (const std::string text : {"", " ", "-x", "--raw", "[a,b]", "{}", "%%", "a=b", "\"q\"",
                                 "line\nline", "@file", "\xF0\x9F\x8C\x8D", "--", "a,b", "'c'"}) {
    const auto line = parse(0, {"-p", text});
    ASSERT_TRUE(line.is_ok()) << text << ": " << line.status().message();
    EXPECT_EQ(line->values.text(kText), text);
  }
}

TEST(CommandLine, RepeatableOptionsKeepTheirOrder) {
  const auto line = parse(0, {"--stop", "b", "--stop=a", "dir", "--stop", "[c]"});
  ASSERT_TRUE(line.is_ok()) << line.status().message();
  EXPECT_EQ(line->values.texts(kStop), (std::vector<std::string>{"b", "a", "[c]"}));
  EXPECT_EQ(line->values.argument("MODEL"), "dir");
}

TEST(CommandLine, TheLastArgumentMayBeRepeated) {
  const auto line = parse(2, {"in", "b", "--raw", "a", "--stop", "s", "[c]"});
  ASSERT_TRUE(line.is_ok()) << line.status().message();
  EXPECT_EQ(line->values.argument("IN"), "in");
  EXPECT_EQ(line->values.arguments("OUT"), (std::vector<std::string>{"b", "a", "[c]"}));
  EXPECT_EQ(parse(2, {"in", "x"})->values.arguments("OUT"), std::vector<std::string>{"x"});
  EXPECT_TRUE(parse(2, {"--raw"})->values.arguments("OUT").empty());
}

TEST(CommandLine, DoubleDashEndsTheOptions) {
  const auto line = parse(0, {"--", "--raw"});
  ASSERT_TRUE(line.is_ok()) << line.status().message();
  EXPECT_EQ(line->values.argument("MODEL"), "--raw");
}

TEST(CommandLine, HelpWinsOverMissingArguments) {
  EXPECT_TRUE(parse(1, {"--help"})->wants_help);
  EXPECT_TRUE(parse(1, {"-h"})->wants_help);
}

TEST(CommandLine, ErrorsSayWhatIsWrong) {
  EXPECT_EQ(error_of(0, {"--cuont", "3"}),
            "unknown option --cuont; did you mean --count?; \"motley help say\" lists the options");
  EXPECT_EQ(error_of(0, {"--bits", "4"}),
            "--bits is not used by \"motley say\"; it belongs to copy");
  EXPECT_EQ(error_of(0, {"a", "b"}), "unexpected argument \"b\" after those of \"motley say\"");
  EXPECT_EQ(error_of(1, {"a"}), "\"motley copy\" needs OUT: where to");
  EXPECT_EQ(error_of(0, {"-p", "a", "-p", "b"}), "--text is given 2 times");
  EXPECT_NE(error_of(0, {"--count"}), "");
  EXPECT_NE(error_of(0, {"--raw=maybe"}), "");
}

}  // namespace
}  // namespace motley
