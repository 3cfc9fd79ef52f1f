#include "text/pre_tokenizer.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

namespace motley {
namespace {

using Json = nlohmann::json;

Json byte_level(bool prefix = false, bool regex = false) {
  return {{"type", "ByteLevel"}, {"add_prefix_space", prefix}, {"use_regex", regex}};
}

Json sequence(const std::vector<Json>& steps) {
  return {{"type", "Sequence"}, {"pretokenizers", steps}};
}

Json split(const std::string& kind, const std::string& pattern, const std::string& behavior,
           bool invert = false) {
  return {{"type", "Split"},
          {"pattern", {{kind, pattern}}},
          {"behavior", behavior},
          {"invert", invert}};
}

std::vector<std::string> words(const Json& config, const std::string& text) {
  const Result<PreTokenizer> pre_tokenizer = PreTokenizer::from_json(config);
  EXPECT_TRUE(pre_tokenizer.is_ok()) << pre_tokenizer.status().message();
  Regex::Scratch scratch;
  std::vector<std::string> out;
  EXPECT_TRUE(pre_tokenizer.value()
                  .split(text, scratch,
                         [&](std::string_view word) {
                           out.emplace_back(word);
                           return Status::ok();
                         })
                  .is_ok());
  return out;
}

using Words = std::vector<std::string>;

// Expected values were produced with the Rust tokenizers library 0.23.
TEST(PreTokenizer, EveryBehaviour) {
  const std::string text = "the-final--countdown-";
  const std::vector<std::tuple<std::string, bool, Words>> cases = {
      {"Removed", false, {"the", "final", "countdown"}},
      {"Removed", true, {"-", "-", "-", "-"}},
      {"Isolated", false, {"the", "-", "final", "-", "-", "countdown", "-"}},
      {"Isolated", true, {"the", "-", "final", "-", "-", "countdown", "-"}},
      {"MergedWithPrevious", false, {"the-", "final-", "-", "countdown-"}},
      {"MergedWithPrevious", true, {"the", "-final", "-", "-countdown", "-"}},
      {"MergedWithNext", false, {"the", "-final", "-", "-countdown", "-"}},
      {"MergedWithNext", true, {"the-", "final-", "-", "countdown-"}},
      {"Contiguous", false, {"the", "-", "final", "--", "countdown", "-"}},
      {"Contiguous", true, {"the", "-", "final", "--", "countdown", "-"}},
  };
  for (const auto& [behavior, invert, expected] : cases) {
    for (const char* kind : {"String", "Regex"}) {
      EXPECT_EQ(words(sequence({split(kind, "-", behavior, invert), byte_level()}), text), expected)
          << kind << " " << behavior << " " << invert;
    }
  }
}

TEST(PreTokenizer, EmptyMatchesCutButGiveNothing) {
  const auto cut = [](const std::string& pattern, const std::string& text) {
    return words(sequence({split("Regex", pattern, "Isolated"), byte_level()}), text);
  };
  EXPECT_EQ(cut("x*", "axxb"), (Words{"a", "xx", "b"}));
  EXPECT_EQ(cut("(?=b)", "abab"), (Words{"a", "ba", "b"}));
  EXPECT_EQ(cut("", "ab"), (Words{"a", "b"}));
}

TEST(PreTokenizer, ByteLevelPatternAndPrefixSpace) {
  EXPECT_EQ(words(byte_level(false, true), "Hello my friend, it's 42  now\n"),
            (Words{"Hello", " my", " friend", ",", " it", "'s", " 42", " ", " now", "\n"}));
  EXPECT_EQ(words(byte_level(true, true), "Hello there"), (Words{" Hello", " there"}));
  EXPECT_EQ(words(byte_level(true, false), " a"), (Words{" a"}));
  // The prefix goes before every piece that the earlier steps made, as in the reference.
  EXPECT_EQ(words(sequence({split("String", "-", "Removed"), byte_level(true, false)}), "a-b"),
            (Words{" a", " b"}));
}

TEST(PreTokenizer, Digits) {
  const Json together = {{"type", "Digits"}, {"individual_digits", false}};
  const Json apart = {{"type", "Digits"}, {"individual_digits", true}};
  EXPECT_EQ(words(sequence({together, byte_level()}), "a12²b"), (Words{"a", "12²", "b"}));
  EXPECT_EQ(words(sequence({apart, byte_level()}), "a12²b"), (Words{"a", "1", "2", "²", "b"}));
}

TEST(PreTokenizer, StepsWorkOnThePiecesOfEarlierSteps) {
  const Json config = sequence({split("Regex", "\\p{N}{1,3}", "Isolated"),
                                split("Regex", "\\s+(?!\\S)|\\s+", "Isolated"), byte_level()});
  EXPECT_EQ(words(config, "12345 \n 6"), (Words{"123", "45", " \n ", "6"}));
}

TEST(PreTokenizer, RefusesByName) {
  const auto error = [](const Json& config) {
    const Result<PreTokenizer> result = PreTokenizer::from_json(config);
    EXPECT_FALSE(result.is_ok()) << config.dump();
    return result.is_ok() ? std::string() : result.status().message();
  };
  const auto has = [](const std::string& text, const std::string& part) {
    return text.find(part) != std::string::npos;
  };
  EXPECT_TRUE(has(error(nullptr), "pre_tokenizer"));
  EXPECT_TRUE(has(error({{"type", "Metaspace"}}), "Metaspace"));
  EXPECT_TRUE(has(error(sequence({split("String", "-", "Isolated")})), "ByteLevel"));
  EXPECT_TRUE(has(error(sequence({byte_level(), split("String", "-", "Isolated")})), "last"));
  EXPECT_TRUE(has(error(sequence({split("String", "-", "Other"), byte_level()})), "behavior"));
  EXPECT_TRUE(has(error(sequence({split("Glob", "-", "Isolated"), byte_level()})), "pattern"));
  EXPECT_TRUE(
      has(error(sequence({split("Regex", "(", "Isolated"), byte_level()})), "pretokenizers[0]"));
  Json unknown = byte_level();
  unknown["colour"] = 1;
  EXPECT_TRUE(has(error(unknown), "colour"));
  EXPECT_TRUE(
      has(error(sequence(std::vector<Json>(40, split("String", "-", "Isolated")))), "steps"));
  Json nested = byte_level();
  for (int i = 0; i < 10; ++i) nested = sequence({nested});
  EXPECT_TRUE(has(error(nested), "nested"));
}

TEST(PreTokenizer, AFailureOfTheVisitorEndsTheSplit) {
  const Result<PreTokenizer> pre_tokenizer = PreTokenizer::from_json(byte_level(false, true));
  ASSERT_TRUE(pre_tokenizer.is_ok());
  Regex::Scratch scratch;
  int calls = 0;
  const Status status = pre_tokenizer.value().split("a b c", scratch, [&](std::string_view) {
    ++calls;
    return cancelled("enough");
  });
  EXPECT_EQ(status.code(), StatusCode::kCancelled);
  EXPECT_EQ(calls, 1);
}

}  // namespace
}  // namespace motley
