// Rewrites an Oniguruma pattern (the dialect of tokenizer.json) as a PCRE2 pattern.
//
// Same meaning, different spelling: \s is White_Space exactly, \h is a hexadecimal digit, \p{Han}
// is the script (PCRE2 would take the script extensions), `x{1,3}+` repeats the interval (PCRE2
// would make it possessive), classes nest and intersect ([\p{L}&&[^\p{Han}]]), groups never
// capture. What has no sure equivalent is refused by name: back references, \b, \R, \X, named
// groups, inline flags other than (?i:...) and (?-i:...), POSIX brackets, stacked quantifiers.
//
// Known difference: Oniguruma folds one character to several under (?i:...) ("ss" and U+00DF),
// PCRE2 folds one to one.
// Source: Oniguruma doc/RE (Ruby syntax) and pcre2pattern(3). Thread rule: pure function.
#pragma once

#include <string>
#include <string_view>

#include "base/status.h"

namespace motley {

// Limits on patterns, which come from downloaded files.
inline constexpr size_t kMaxPatternBytes = 64 * 1024;
inline constexpr int kMaxPatternDepth = 32;
inline constexpr int kMaxPatternRepeat = 1000;

// The PCRE2 pattern for PCRE2_UTF | PCRE2_UCP | PCRE2_MULTILINE with newline LF.
Result<std::string> pcre2_pattern_of_oniguruma(std::string_view pattern);

}  // namespace motley
