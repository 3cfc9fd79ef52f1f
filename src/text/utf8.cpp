#include "text/utf8.h"

#include <cstring>

#include "base/check.h"

namespace motley {
namespace {

struct LeadRule {
  size_t length = 0;  // bytes of the whole character; 0 for a byte that cannot lead
  unsigned char second_low = 0x80;
  unsigned char second_high = 0xBF;
};

// Table 3-7 of the Unicode Standard.
LeadRule lead_rule(unsigned char lead) {
  if (lead >= 0xC2 && lead <= 0xDF) return {2, 0x80, 0xBF};
  if (lead == 0xE0) return {3, 0xA0, 0xBF};
  if (lead == 0xED) return {3, 0x80, 0x9F};
  if (lead >= 0xE1 && lead <= 0xEF) return {3, 0x80, 0xBF};
  if (lead == 0xF0) return {4, 0x90, 0xBF};
  if (lead >= 0xF1 && lead <= 0xF3) return {4, 0x80, 0xBF};
  if (lead == 0xF4) return {4, 0x80, 0x8F};
  return {};
}

size_t ascii_prefix(std::string_view text) {
  size_t at = 0;
  while (at + 8 <= text.size()) {
    uint64_t word = 0;
    std::memcpy(&word, text.data() + at, 8);
    if ((word & 0x8080808080808080u) != 0) break;
    at += 8;
  }
  while (at < text.size() && static_cast<unsigned char>(text[at]) < 0x80) ++at;
  return at;
}

}  // namespace

Utf8Step next_utf8(std::string_view text) {
  MOTLEY_CHECK(!text.empty(), "no character in an empty text");
  const auto lead = static_cast<unsigned char>(text[0]);
  if (lead < 0x80) return {Utf8State::kValid, 1, lead};
  const LeadRule rule = lead_rule(lead);
  if (rule.length == 0) return {Utf8State::kInvalid, 1, 0xFFFD};
  char32_t code_point = lead & (0x7Fu >> rule.length);
  for (size_t i = 1; i < rule.length; ++i) {
    if (i == text.size()) return {Utf8State::kIncomplete, i, 0xFFFD};
    const auto byte = static_cast<unsigned char>(text[i]);
    const unsigned char low = i == 1 ? rule.second_low : 0x80;
    const unsigned char high = i == 1 ? rule.second_high : 0xBF;
    if (byte < low || byte > high) return {Utf8State::kInvalid, i, 0xFFFD};
    code_point = (code_point << 6) | (byte & 0x3Fu);
  }
  return {Utf8State::kValid, rule.length, code_point};
}

void append_utf8(char32_t code_point, std::string& out) {
  MOTLEY_CHECK(code_point < 0x110000 && (code_point < 0xD800 || code_point > 0xDFFF),
               "only scalar values have a UTF-8 form");
  const auto push = [&out](char32_t value) { out.push_back(static_cast<char>(value)); };
  if (code_point < 0x80) {
    push(code_point);
  } else if (code_point < 0x800) {
    push(0xC0 | (code_point >> 6));
    push(0x80 | (code_point & 0x3F));
  } else if (code_point < 0x10000) {
    push(0xE0 | (code_point >> 12));
    push(0x80 | ((code_point >> 6) & 0x3F));
    push(0x80 | (code_point & 0x3F));
  } else {
    push(0xF0 | (code_point >> 18));
    push(0x80 | ((code_point >> 12) & 0x3F));
    push(0x80 | ((code_point >> 6) & 0x3F));
    push(0x80 | (code_point & 0x3F));
  }
}

size_t valid_utf8_prefix(std::string_view text) {
  size_t at = 0;
  while (true) {
    at += ascii_prefix(text.substr(at));
    if (at == text.size()) return at;
    const Utf8Step step = next_utf8(text.substr(at));
    if (step.state != Utf8State::kValid) return at;
    at += step.length;
  }
}

bool is_valid_utf8(std::string_view text) {
  return valid_utf8_prefix(text) == text.size();
}

std::string replace_invalid_utf8(std::string_view text) {
  std::string out;
  out.reserve(text.size());
  while (!text.empty()) {
    const size_t valid = valid_utf8_prefix(text);
    out.append(text.substr(0, valid));
    text.remove_prefix(valid);
    if (text.empty()) break;
    out.append(kReplacementCharacter);
    text.remove_prefix(next_utf8(text).length);
  }
  return out;
}

std::string printable_excerpt(std::string_view text, size_t max_bytes) {
  const std::string_view head = text.substr(0, max_bytes);
  std::string out(head.substr(0, valid_utf8_prefix(head)));
  for (char& c : out) {
    if (static_cast<unsigned char>(c) < 0x20 || c == 0x7F) c = '?';
  }
  return out.size() < text.size() ? out + "..." : out;
}

}  // namespace motley
