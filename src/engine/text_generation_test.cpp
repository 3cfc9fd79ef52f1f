#include "engine/text_generation.h"

#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include "text/test_tokenizer.h"

namespace motley {
namespace {

// Byte b is token b.
Tokenizer byte_tokenizer() {
  Result<Tokenizer> tokenizer = Tokenizer::parse(test_tokenizer_json().dump());
  EXPECT_TRUE(tokenizer.is_ok()) << tokenizer.status().message();
  return std::move(tokenizer).value();
}

struct Played {
  std::string streamed;
  bool ended_early = false;
  FinishReason reason = FinishReason::kFailed;
  std::string text;
  size_t tokens = 0;
  std::optional<std::string> stop;
};

Played play(const std::string& bytes, std::vector<std::string> stops,
            FinishReason reason = FinishReason::kLength) {
  static const Tokenizer tokenizer = byte_tokenizer();
  Played played;
  TextGenerationOptions options;
  options.stops = std::move(stops);
  options.on_text = [&](std::string_view text) { played.streamed += text; };
  TextGeneration generation(tokenizer, std::move(options));
  for (const char byte : bytes) {
    if (!generation.on_token({.token = static_cast<unsigned char>(byte)})) {
      played.ended_early = true;
      reason = FinishReason::kCancelled;  // as the scheduler reports it
      break;
    }
  }
  generation.on_finish(reason, Status::ok(), {});
  played.reason = generation.reason();
  played.text = generation.text();
  played.tokens = generation.tokens().size();
  played.stop = generation.matched_stop();
  return played;
}

TEST(TextGeneration, StreamsWholeCharacters) {
  static const Tokenizer tokenizer = byte_tokenizer();
  std::vector<std::string> pieces;
  TextGenerationOptions options;
  options.on_text = [&](std::string_view text) { pieces.emplace_back(text); };
  TextGeneration generation(tokenizer, std::move(options));
  for (const char byte : std::string("a\xC3\xBC!")) {
    EXPECT_TRUE(generation.on_token({.token = static_cast<unsigned char>(byte)}));
  }
  EXPECT_FALSE(generation.finished());
  generation.on_finish(FinishReason::kStopToken, Status::ok(), {.generated_tokens = 4});
  EXPECT_EQ(pieces, (std::vector<std::string>{"a", "\xC3\xBC", "!"}));
  EXPECT_EQ(generation.reason(), FinishReason::kStopToken);
  EXPECT_EQ(generation.stats().generated_tokens, 4);
}

TEST(TextGeneration, AStopStringEndsTheTextAndCountsAsStop) {
  const Played played = play("one END two", {"END"});
  EXPECT_TRUE(played.ended_early);
  EXPECT_EQ(played.text, "one ");
  EXPECT_EQ(played.streamed, "one ");
  EXPECT_EQ(played.reason, FinishReason::kStopToken);
  EXPECT_EQ(played.stop, "END");
  EXPECT_EQ(played.tokens, 7U);
}

TEST(TextGeneration, HeldBackTextComesAtTheEnd) {
  const Played played = play("one EN", {"END"});
  EXPECT_FALSE(played.ended_early);
  EXPECT_EQ(played.text, "one EN");
  EXPECT_EQ(played.reason, FinishReason::kLength);
}

TEST(TextGeneration, AnUnfinishedCharacterBecomesAReplacement) {
  EXPECT_EQ(play("a\xC3", {}).text, "a\xEF\xBF\xBD");
}

TEST(TextGeneration, CancelEndsWithTheNextToken) {
  static const Tokenizer tokenizer = byte_tokenizer();
  TextGeneration generation(tokenizer, {});
  EXPECT_TRUE(generation.on_token({.token = 'a'}));
  generation.cancel();
  EXPECT_FALSE(generation.on_token({.token = 'b'}));
  generation.on_finish(FinishReason::kCancelled, Status::ok(), {});
  EXPECT_EQ(generation.reason(), FinishReason::kCancelled);
}

// What is streamed is the text, and the text is what comes before the first stop string.
RC_GTEST_PROP(TextGeneration, TextIsThatBeforeTheStop, ()) {
  const auto letters = *rc::gen::container<std::string>(rc::gen::element('a', 'b', 'c'));
  const Played played = play(letters, {"ab", "cc"});
  const size_t first = std::min(letters.find("ab"), letters.find("cc"));
  RC_ASSERT(played.text == letters.substr(0, first));
  RC_ASSERT(played.streamed == played.text);
  RC_ASSERT(played.stop.has_value() == (first != std::string::npos));
}

}  // namespace
}  // namespace motley
