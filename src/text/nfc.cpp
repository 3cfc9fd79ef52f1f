#include "text/nfc.h"

#include <utf8proc.h>

#include <algorithm>
#include <array>
#include <cstddef>
#include <vector>

#include "base/check.h"
#include "text/utf8.h"

namespace motley {
namespace {

utf8proc_int32_t to_proc(char32_t code_point) {
  return static_cast<utf8proc_int32_t>(code_point);
}

int combining_class(utf8proc_int32_t code_point) {
  return utf8proc_get_property(code_point)->combining_class;
}

// Decomposes fully into `out` (at most 4 code points for canonical decompositions).
void append_decomposed(char32_t code_point, std::vector<utf8proc_int32_t>& out) {
  std::array<utf8proc_int32_t, 32> parts{};
  int boundary = 0;
  const utf8proc_ssize_t count = utf8proc_decompose_char(
      to_proc(code_point), parts.data(), static_cast<utf8proc_ssize_t>(parts.size()),
      static_cast<utf8proc_option_t>(UTF8PROC_DECOMPOSE), &boundary);
  MOTLEY_CHECK(count >= 0 && count <= static_cast<utf8proc_ssize_t>(parts.size()),
               "canonical decompositions are short");
  out.insert(out.end(), parts.begin(), parts.begin() + count);
}

bool is_hangul_syllable(char32_t code_point) {
  return code_point >= 0xAC00 && code_point <= 0xD7A3;
}

// True when the character normalises to itself and never merges into what stands before it.
// A run of text between two such characters can be normalised alone, provided that the one before
// an unstable character is taken along (it may absorb marks).
bool is_stable(char32_t code_point) {
  if (code_point < 0x300) return true;
  if (code_point >= 0x1160 && code_point <= 0x11FF) return false;  // Hangul vowels and finals
  if (is_hangul_syllable(code_point)) return true;
  const auto category = utf8proc_category(to_proc(code_point));
  if (category == UTF8PROC_CATEGORY_MN || category == UTF8PROC_CATEGORY_MC ||
      category == UTF8PROC_CATEGORY_ME || combining_class(to_proc(code_point)) != 0) {
    return false;
  }
  std::array<utf8proc_int32_t, 32> parts{};
  int boundary = 0;
  const utf8proc_ssize_t count = utf8proc_decompose_char(
      to_proc(code_point), parts.data(), static_cast<utf8proc_ssize_t>(parts.size()),
      static_cast<utf8proc_option_t>(UTF8PROC_DECOMPOSE), &boundary);
  return count == 1 && parts[0] == to_proc(code_point);
}

void sort_marks(std::vector<utf8proc_int32_t>& points) {
  size_t at = 0;
  while (at < points.size()) {
    if (combining_class(points[at]) == 0) {
      ++at;
      continue;
    }
    size_t end = at;
    while (end < points.size() && combining_class(points[end]) != 0) ++end;
    std::stable_sort(points.begin() + static_cast<std::ptrdiff_t>(at),
                     points.begin() + static_cast<std::ptrdiff_t>(end),
                     [](utf8proc_int32_t a, utf8proc_int32_t b) {
                       return combining_class(a) < combining_class(b);
                     });
    at = end;
  }
}

void append_normalized(std::string_view region, std::vector<utf8proc_int32_t>& points,
                       std::string& out) {
  points.clear();
  while (!region.empty()) {
    const Utf8Step step = next_utf8(region);
    append_decomposed(step.code_point, points);
    region.remove_prefix(step.length);
  }
  sort_marks(points);
  const utf8proc_ssize_t count =
      utf8proc_normalize_utf32(points.data(), static_cast<utf8proc_ssize_t>(points.size()),
                               static_cast<utf8proc_option_t>(UTF8PROC_STABLE | UTF8PROC_COMPOSE));
  MOTLEY_CHECK(count >= 0, "composition of valid code points cannot fail");
  for (utf8proc_ssize_t i = 0; i < count; ++i) {
    append_utf8(static_cast<char32_t>(points[static_cast<size_t>(i)]), out);
  }
}

}  // namespace

std::string normalize_nfc(std::string_view text) {
  std::string out;
  out.reserve(text.size());
  std::vector<utf8proc_int32_t> points;
  size_t copied = 0;       // everything before is in `out`
  size_t last_stable = 0;  // start of the stable character before `at`, or `at`
  size_t at = 0;
  while (at < text.size()) {
    const Utf8Step step = next_utf8(text.substr(at));
    if (is_stable(step.code_point)) {
      last_stable = at;
      at += step.length;
      continue;
    }
    out.append(text.substr(copied, last_stable - copied));
    size_t end = at + step.length;
    while (end < text.size()) {
      const Utf8Step next = next_utf8(text.substr(end));
      if (is_stable(next.code_point)) break;
      end += next.length;
    }
    append_normalized(text.substr(last_stable, end - last_stable), points, out);
    copied = last_stable = at = end;
  }
  out.append(text.substr(copied));
  return out;
}

bool is_white_space(char32_t code_point) {
  return (code_point >= 0x09 && code_point <= 0x0D) || code_point == 0x20 || code_point == 0x85 ||
         code_point == 0xA0 || code_point == 0x1680 ||
         (code_point >= 0x2000 && code_point <= 0x200A) || code_point == 0x2028 ||
         code_point == 0x2029 || code_point == 0x202F || code_point == 0x205F ||
         code_point == 0x3000;
}

bool is_word_character(char32_t code_point) {
  if (code_point == 0x200C || code_point == 0x200D) return true;
  // Other_Alphabetic outside the categories below: circled and squared Latin letters.
  if ((code_point >= 0x24B6 && code_point <= 0x24E9) ||
      (code_point >= 0x1F130 && code_point <= 0x1F149) ||
      (code_point >= 0x1F150 && code_point <= 0x1F169) ||
      (code_point >= 0x1F170 && code_point <= 0x1F189)) {
    return true;
  }
  switch (utf8proc_category(to_proc(code_point))) {
    case UTF8PROC_CATEGORY_LU:
    case UTF8PROC_CATEGORY_LL:
    case UTF8PROC_CATEGORY_LT:
    case UTF8PROC_CATEGORY_LM:
    case UTF8PROC_CATEGORY_LO:
    case UTF8PROC_CATEGORY_MN:
    case UTF8PROC_CATEGORY_MC:
    case UTF8PROC_CATEGORY_ME:
    case UTF8PROC_CATEGORY_ND:
    case UTF8PROC_CATEGORY_NL:
    case UTF8PROC_CATEGORY_PC:
      return true;
    default:
      return false;
  }
}

}  // namespace motley
