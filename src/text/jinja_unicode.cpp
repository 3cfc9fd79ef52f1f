#include "text/jinja_unicode.h"

#include <utf8proc.h>

#include <algorithm>
#include <array>

#include "text/jinja_special_cases.h"

namespace motley::jinja {
namespace {

constexpr char32_t kReplacement = 0xFFFD;
constexpr char32_t kCapitalSigma = 0x03A3;
constexpr char32_t kSmallSigma = 0x03C3;
constexpr char32_t kFinalSigma = 0x03C2;
constexpr char32_t kCapitalDottedI = 0x0130;

utf8proc_category_t category(char32_t c) {
  return utf8proc_category(static_cast<utf8proc_int32_t>(c));
}

char32_t simple(char32_t c, utf8proc_int32_t (*map)(utf8proc_int32_t)) {
  return static_cast<char32_t>(map(static_cast<utf8proc_int32_t>(c)));
}

const SpecialCase* find_special(char32_t c) {
  const auto* found = std::lower_bound(
      kSpecialCases.begin(), kSpecialCases.end(), c,
      [](const SpecialCase& entry, char32_t wanted) { return entry.code_point < wanted; });
  return found != kSpecialCases.end() && found->code_point == c ? found : nullptr;
}

void append_all(std::vector<char32_t>& out, const std::array<char32_t, 3>& characters) {
  for (const char32_t c : characters) {
    if (c != 0) out.push_back(c);
  }
}

void append_upper(std::vector<char32_t>& out, char32_t c) {
  const SpecialCase* special = find_special(c);
  if (special != nullptr) return append_all(out, special->upper);
  out.push_back(simple(c, utf8proc_toupper));
}

void append_title(std::vector<char32_t>& out, char32_t c) {
  const SpecialCase* special = find_special(c);
  if (special != nullptr) return append_all(out, special->title);
  out.push_back(simple(c, utf8proc_totitle));
}

bool is_cased(char32_t c) {
  return is_upper(c) || is_lower(c) || is_title(c);
}

bool is_case_ignorable(char32_t c) {
  switch (category(c)) {
    case UTF8PROC_CATEGORY_MN:
    case UTF8PROC_CATEGORY_ME:
    case UTF8PROC_CATEGORY_CF:
    case UTF8PROC_CATEGORY_LM:
    case UTF8PROC_CATEGORY_SK:
      return true;
    default:
      return c == '\'' || c == '.' || c == ':' || c == 0x00B7 || c == 0x2019;
  }
}

// A capital sigma is written as a final one after a letter and before no letter.
bool is_final_sigma(const std::vector<char32_t>& text, std::size_t at) {
  std::size_t before = at;
  while (before > 0 && is_case_ignorable(text[before - 1])) --before;
  if (before == 0 || !is_cased(text[before - 1])) return false;
  std::size_t after = at + 1;
  while (after < text.size() && is_case_ignorable(text[after])) ++after;
  return after == text.size() || !is_cased(text[after]);
}

void append_lower(std::vector<char32_t>& out, const std::vector<char32_t>& text, std::size_t at) {
  const char32_t c = text[at];
  if (c == kCapitalSigma) {
    out.push_back(is_final_sigma(text, at) ? kFinalSigma : kSmallSigma);
  } else if (c == kCapitalDottedI) {
    out.push_back('i');
    out.push_back(0x0307);
  } else {
    out.push_back(simple(c, utf8proc_tolower));
  }
}

bool is_line_end(char32_t c) {
  return (c >= 0x0A && c <= 0x0D) || (c >= 0x1C && c <= 0x1E) || c == 0x85 || c == 0x2028 ||
         c == 0x2029;
}

// Start of the character before `end`.
std::size_t previous_start(std::string_view text, std::size_t end) {
  std::size_t start = end - 1;
  while (start > 0 && end - start < 4 && (static_cast<unsigned char>(text[start]) & 0xC0) == 0x80) {
    --start;
  }
  return start;
}

template <typename Predicate>
std::string_view strip_if(std::string_view text, Side side, Predicate drops) {
  std::size_t begin = 0;
  std::size_t end = text.size();
  while (side != Side::kRight && begin < end) {
    std::size_t next = begin;
    if (!drops(next_code_point(text, next))) break;
    begin = next;
  }
  while (side != Side::kLeft && end > begin) {
    std::size_t start = previous_start(text, end);
    const std::size_t keep = start;
    if (!drops(next_code_point(text, start))) break;
    end = std::max(keep, begin);
  }
  return text.substr(begin, end - begin);
}

}  // namespace

char32_t next_code_point(std::string_view text, std::size_t& position) {
  const auto first = static_cast<unsigned char>(text[position]);
  if (first < 0x80) {
    ++position;
    return first;
  }
  utf8proc_int32_t code_point = -1;
  const auto* bytes = reinterpret_cast<const utf8proc_uint8_t*>(text.data()) + position;
  const auto room = static_cast<utf8proc_ssize_t>(text.size() - position);
  const utf8proc_ssize_t used = utf8proc_iterate(bytes, room, &code_point);
  if (used <= 0) {
    ++position;
    return kReplacement;
  }
  position += static_cast<std::size_t>(used);
  return static_cast<char32_t>(code_point);
}

bool is_valid_utf8(std::string_view text) {
  std::size_t position = 0;
  while (position < text.size()) {
    const std::size_t start = position;
    const char32_t c = next_code_point(text, position);
    // A genuine U+FFFD takes three bytes, the stand-in for a broken byte takes one.
    if (c == kReplacement && position - start == 1) return false;
  }
  return true;
}

std::size_t count_code_points(std::string_view text) {
  std::size_t count = 0;
  for (const char byte : text) count += (static_cast<unsigned char>(byte) & 0xC0) != 0x80 ? 1 : 0;
  return count;
}

void append_utf8(std::string& text, char32_t code_point) {
  std::array<utf8proc_uint8_t, 4> bytes{};
  const auto used = utf8proc_encode_char(static_cast<utf8proc_int32_t>(code_point), bytes.data());
  text.append(reinterpret_cast<const char*>(bytes.data()), static_cast<std::size_t>(used));
}

std::vector<char32_t> decode_utf8(std::string_view text) {
  std::vector<char32_t> out;
  out.reserve(text.size());
  std::size_t position = 0;
  while (position < text.size()) out.push_back(next_code_point(text, position));
  return out;
}

std::string encode_utf8(const std::vector<char32_t>& code_points) {
  std::string out;
  out.reserve(code_points.size());
  for (const char32_t c : code_points) append_utf8(out, c);
  return out;
}

std::size_t byte_offset(std::string_view text, std::size_t index, bool is_ascii) {
  if (is_ascii) return std::min(index, text.size());
  std::size_t position = 0;
  for (; index > 0 && position < text.size(); --index) next_code_point(text, position);
  return position;
}

bool is_space(char32_t c) {
  return (c >= 0x09 && c <= 0x0D) || (c >= 0x1C && c <= 0x20) || c == 0x85 || c == 0xA0 ||
         c == 0x1680 || (c >= 0x2000 && c <= 0x200A) || c == 0x2028 || c == 0x2029 || c == 0x202F ||
         c == 0x205F || c == 0x3000;
}

bool is_printable(char32_t c) {
  switch (category(c)) {
    case UTF8PROC_CATEGORY_CN:
    case UTF8PROC_CATEGORY_CC:
    case UTF8PROC_CATEGORY_CF:
    case UTF8PROC_CATEGORY_CS:
    case UTF8PROC_CATEGORY_CO:
    case UTF8PROC_CATEGORY_ZL:
    case UTF8PROC_CATEGORY_ZP:
      return false;
    case UTF8PROC_CATEGORY_ZS:
      return c == ' ';
    default:
      return true;
  }
}

bool is_alpha(char32_t c) {
  switch (category(c)) {
    case UTF8PROC_CATEGORY_LU:
    case UTF8PROC_CATEGORY_LL:
    case UTF8PROC_CATEGORY_LT:
    case UTF8PROC_CATEGORY_LM:
    case UTF8PROC_CATEGORY_LO:
      return true;
    default:
      return false;
  }
}

bool is_decimal(char32_t c) {
  return category(c) == UTF8PROC_CATEGORY_ND;
}

bool is_digit(char32_t c) {
  // Superscripts and subscripts are digits to Python although they are not decimal.
  return is_decimal(c) || c == 0xB2 || c == 0xB3 || c == 0xB9 || c == 0x2070 ||
         (c >= 0x2074 && c <= 0x2079) || (c >= 0x2080 && c <= 0x2089);
}

bool is_numeric(char32_t c) {
  const auto kind = category(c);
  return is_digit(c) || kind == UTF8PROC_CATEGORY_NL || kind == UTF8PROC_CATEGORY_NO;
}

bool is_upper(char32_t c) {
  return category(c) == UTF8PROC_CATEGORY_LU;
}

bool is_lower(char32_t c) {
  return category(c) == UTF8PROC_CATEGORY_LL || c == 0xAA || c == 0xBA;
}

bool is_title(char32_t c) {
  return category(c) == UTF8PROC_CATEGORY_LT;
}

bool is_word(char32_t c) {
  return c == '_' || is_alpha(c) || is_numeric(c);
}

std::string to_upper(std::string_view text) {
  std::vector<char32_t> out;
  for (const char32_t c : decode_utf8(text)) append_upper(out, c);
  return encode_utf8(out);
}

std::string to_lower(std::string_view text) {
  const std::vector<char32_t> source = decode_utf8(text);
  std::vector<char32_t> out;
  for (std::size_t i = 0; i < source.size(); ++i) append_lower(out, source, i);
  return encode_utf8(out);
}

std::string to_title(std::string_view text) {
  const std::vector<char32_t> source = decode_utf8(text);
  std::vector<char32_t> out;
  bool in_word = false;
  for (std::size_t i = 0; i < source.size(); ++i) {
    if (in_word) {
      append_lower(out, source, i);
    } else {
      append_title(out, source[i]);
    }
    in_word = is_cased(source[i]);
  }
  return encode_utf8(out);
}

std::string to_capitalized(std::string_view text) {
  const std::vector<char32_t> source = decode_utf8(text);
  std::vector<char32_t> out;
  for (std::size_t i = 0; i < source.size(); ++i) {
    if (i == 0) {
      append_title(out, source[i]);
    } else {
      append_lower(out, source, i);
    }
  }
  return encode_utf8(out);
}

std::string to_swapped_case(std::string_view text) {
  const std::vector<char32_t> source = decode_utf8(text);
  std::vector<char32_t> out;
  for (std::size_t i = 0; i < source.size(); ++i) {
    if (is_upper(source[i])) {
      append_lower(out, source, i);
    } else if (is_lower(source[i])) {
      append_upper(out, source[i]);
    } else {
      out.push_back(source[i]);
    }
  }
  return encode_utf8(out);
}

std::string to_casefold(std::string_view text) {
  std::vector<char32_t> out;
  for (const char32_t c : decode_utf8(text)) {
    std::array<utf8proc_int32_t, 8> folded{};
    int boundary = 0;
    const utf8proc_ssize_t count = utf8proc_decompose_char(
        static_cast<utf8proc_int32_t>(c), folded.data(),
        static_cast<utf8proc_ssize_t>(folded.size()), UTF8PROC_CASEFOLD, &boundary);
    if (count <= 0 || count > static_cast<utf8proc_ssize_t>(folded.size())) {
      out.push_back(c);
      continue;
    }
    for (utf8proc_ssize_t i = 0; i < count; ++i) {
      out.push_back(static_cast<char32_t>(folded[static_cast<std::size_t>(i)]));
    }
  }
  return encode_utf8(out);
}

std::string_view strip_space(std::string_view text, Side side) {
  return strip_if(text, side, is_space);
}

std::string_view strip_characters(std::string_view text, std::string_view characters, Side side) {
  const std::vector<char32_t> set = decode_utf8(characters);
  return strip_if(text, side,
                  [&set](char32_t c) { return std::find(set.begin(), set.end(), c) != set.end(); });
}

std::vector<std::string_view> split_lines(std::string_view text, bool keep_ends) {
  std::vector<std::string_view> lines;
  std::size_t start = 0;
  std::size_t position = 0;
  while (position < text.size()) {
    const std::size_t end = position;
    const char32_t c = next_code_point(text, position);
    if (!is_line_end(c)) continue;
    if (c == '\r' && position < text.size() && text[position] == '\n') ++position;
    lines.push_back(text.substr(start, (keep_ends ? position : end) - start));
    start = position;
  }
  if (start < text.size()) lines.push_back(text.substr(start));
  return lines;
}

}  // namespace motley::jinja
