// Regular expressions over UTF-8, for pre-tokenizers. The only file that knows PCRE2.
//
// Patterns are in the Oniguruma dialect (see regex_syntax.h). Matching is compiled to machine code
// where PCRE2 can and is bounded: a search that backtracks too long is an error, not a hang.
// Ownership: Regex owns the compiled program. Thread rule: a Regex is immutable and shared freely;
// a Scratch belongs to one thread at a time.
#pragma once

#include <cstddef>
#include <memory>
#include <optional>
#include <string_view>

#include "base/status.h"

namespace motley {

class Regex {
 public:
  // Memory for one search; make one per call of encode and reuse it.
  class Scratch {
   public:
    Scratch();
    ~Scratch();
    Scratch(const Scratch&) = delete;
    Scratch& operator=(const Scratch&) = delete;

   private:
    friend class Regex;
    struct State;
    std::unique_ptr<State> state_;
  };

  // Byte offsets of a match: [begin, end).
  struct Match {
    size_t begin = 0;
    size_t end = 0;
  };

  static Result<Regex> compile(std::string_view oniguruma_pattern);
  ~Regex();
  Regex(Regex&&) noexcept;
  Regex& operator=(Regex&&) noexcept;

  // The leftmost match that starts at or after `from`, nothing when there is none.
  // REQUIRES: `text` is valid UTF-8 and `from` is a character boundary in it.
  Result<std::optional<Match>> search(std::string_view text, size_t from, Scratch& scratch) const;

 private:
  struct Program;
  explicit Regex(std::unique_ptr<Program> program);
  std::unique_ptr<Program> program_;
};

}  // namespace motley
