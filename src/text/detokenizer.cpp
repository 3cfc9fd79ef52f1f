#include "text/detokenizer.h"

#include <string_view>

#include "text/utf8.h"

namespace motley {

std::string Detokenizer::push(TokenId id) {
  if (skip_special_ && tokenizer_->is_special(id)) return {};
  pending_ += tokenizer_->token_bytes(id);
  std::string out;
  std::string_view rest = pending_;
  while (!rest.empty()) {
    const size_t valid = valid_utf8_prefix(rest);
    out += rest.substr(0, valid);
    rest.remove_prefix(valid);
    if (rest.empty()) break;
    const Utf8Step step = next_utf8(rest);
    if (step.state == Utf8State::kIncomplete) break;
    out += kReplacementCharacter;
    rest.remove_prefix(step.length);
  }
  pending_ = std::string(rest);
  return out;
}

std::string Detokenizer::finish() {
  std::string out;
  if (!pending_.empty()) out = kReplacementCharacter;
  pending_.clear();
  return out;
}

}  // namespace motley
