// Tokens to text as they come: the pieces together are decode() of the whole.
//
// A character is given out once it is complete. Bytes that can no longer become one give U+FFFD at
// once; at most 3 bytes wait.
// Ownership: refers to a Tokenizer, which must outlive it. Thread rule: one thread at a time.
#pragma once

#include <string>

#include "text/token_id.h"
#include "text/tokenizer.h"

namespace motley {

class Detokenizer {
 public:
  Detokenizer(const Tokenizer& tokenizer, bool skip_special)
      : tokenizer_(&tokenizer), skip_special_(skip_special) {}

  // The text that has become final with this token; often empty.
  std::string push(TokenId id);

  // What is left: U+FFFD when the tokens ended inside a character, else "". Ready for a new text.
  std::string finish();

  // Whether bytes of an unfinished character wait.
  bool has_pending() const { return !pending_.empty(); }

 private:
  const Tokenizer* tokenizer_;
  bool skip_special_;
  std::string pending_;
};

}  // namespace motley
