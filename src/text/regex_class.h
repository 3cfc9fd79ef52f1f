// Escapes and character classes of Oniguruma patterns; a part of regex_syntax.h.
#pragma once

#include <string>
#include <string_view>

#include "base/status.h"

namespace motley {

// A cursor over a pattern that is valid UTF-8. The pattern must outlive it.
class PatternReader {
 public:
  explicit PatternReader(std::string_view pattern) : pattern_(pattern) {}

  bool at_end() const { return at_ == pattern_.size(); }
  size_t position() const { return at_; }
  void seek(size_t position) { at_ = position; }
  void skip(size_t bytes) { at_ += bytes; }
  std::string_view rest() const { return pattern_.substr(at_); }
  // REQUIRES: not at_end().
  char peek() const { return pattern_[at_]; }
  char take() { return pattern_[at_++]; }
  char32_t take_code_point();

  // The error for `what` at the current place.
  Status refuse(std::string_view what) const;

 private:
  std::string_view pattern_;
  size_t at_ = 0;
};

enum class EscapePlace { kOutside, kInClass };

// One member of a class: a character, or a set as the inside of a PCRE2 class.
struct ClassItem {
  bool is_set = false;
  char32_t literal = 0;
  std::string set;
};

// Reads one escape, from its backslash.
Result<ClassItem> read_escape(PatternReader& in, EscapePlace place);

// Reads one bracketed class, from its '[', to a PCRE2 expression that matches one character.
Result<std::string> translate_class(PatternReader& in, int depth);

// The character as PCRE2 reads it literally, inside and outside classes.
std::string pcre2_literal(char32_t code_point);

}  // namespace motley
