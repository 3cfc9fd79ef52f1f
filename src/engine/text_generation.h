// A generation as text: detokenises the tokens as they come, finds stop strings, and hands on what
// is final.
//
// Text is given out in whole characters, and only once it can no longer be the beginning of a stop
// string. A stop string ends the generation with reason kStopToken, as a stop token does, and is
// not part of the text; the tokens that spell it are part of tokens().
// Ownership: refers to the tokenizer, which outlives it. Thread rule: one thread, that of the
// scheduler.
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "engine/scheduler.h"
#include "engine/stop_matcher.h"
#include "text/detokenizer.h"
#include "text/tokenizer.h"

namespace motley {

struct TextGenerationOptions {
  std::vector<std::string> stops;
  bool skip_special = true;  // special tokens give no text
  std::function<void(std::string_view text)> on_text;
  std::function<void(int64_t done_tokens, int64_t total_tokens)> on_prefill;
};

class TextGeneration final : public GenerationListener {
 public:
  TextGeneration(const Tokenizer& tokenizer, TextGenerationOptions options);

  void on_prefill(int64_t done_tokens, int64_t total_tokens) override;
  bool on_token(const SampledToken& token) override;
  void on_finish(FinishReason reason, const Status& status, const GenerationStats& stats) override;

  // The next token ends the generation with kCancelled.
  void cancel() { cancelled_ = true; }

  bool finished() const { return reason_.has_value(); }
  // REQUIRES of the rest: finished().
  FinishReason reason() const { return *reason_; }
  const Status& status() const { return status_; }
  const GenerationStats& stats() const { return stats_; }
  // Everything that was handed on.
  const std::string& text() const { return text_; }
  const std::vector<SampledToken>& tokens() const { return tokens_; }
  // The stop string that ended it.
  const std::optional<std::string>& matched_stop() const { return matcher_.matched(); }

 private:
  void emit(std::string_view text);

  TextGenerationOptions options_;
  Detokenizer detokenizer_;
  StopMatcher matcher_;
  bool cancelled_ = false;
  std::string text_;
  std::vector<SampledToken> tokens_;
  std::optional<FinishReason> reason_;
  Status status_;
  GenerationStats stats_;
};

}  // namespace motley
