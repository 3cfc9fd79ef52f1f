#include "engine/text_generation.h"

namespace motley {

TextGeneration::TextGeneration(const Tokenizer& tokenizer, TextGenerationOptions options)
    : options_(std::move(options)),
      detokenizer_(tokenizer, options_.skip_special),
      matcher_(options_.stops) {}

void TextGeneration::emit(std::string_view text) {
  if (text.empty()) return;
  text_ += text;
  if (options_.on_text) options_.on_text(text);
}

void TextGeneration::on_prefill(int64_t done_tokens, int64_t total_tokens) {
  if (options_.on_prefill) options_.on_prefill(done_tokens, total_tokens);
}

bool TextGeneration::on_token(const SampledToken& token) {
  tokens_.push_back(token);
  emit(matcher_.push(detokenizer_.push(token.token)));
  return !matcher_.matched() && !cancelled_;
}

void TextGeneration::on_finish(FinishReason reason, const Status& status,
                               const GenerationStats& stats) {
  if (!matcher_.matched()) emit(matcher_.push(detokenizer_.finish()));
  if (!matcher_.matched()) emit(matcher_.finish());
  // The scheduler sees a listener that wants no more; only this class knows why.
  reason_ = matcher_.matched() ? FinishReason::kStopToken : reason;
  status_ = status;
  stats_ = stats;
}

}  // namespace motley
