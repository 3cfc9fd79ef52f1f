#include "text/jinja_lexer.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>

#include "text/jinja_error.h"
#include "text/jinja_string_literal.h"
#include "text/jinja_unicode.h"

namespace motley::jinja {
namespace {

// "\r\n" and "\r" become "\n", and one newline at the very end goes.
std::string normalize(std::string_view source) {
  std::string text = normalize_newlines(source);
  if (!text.empty() && text.back() == '\n') text.pop_back();
  return text;
}

bool is_digit_char(char c) {
  return c >= '0' && c <= '9';
}

class Lexer {
 public:
  explicit Lexer(std::string source) : source_(std::move(source)) {}

  Result<std::vector<Token>> run() {
    while (position_ < source_.size() && status_.is_ok()) lex_data();
    if (!status_.is_ok()) return status_;
    push(TokenKind::kEnd, "");
    return std::move(tokens_);
  }

 private:
  void fail(std::string message) {
    if (status_.is_ok()) status_ = invalid_argument(error_line(line_, message));
    position_ = source_.size();
  }

  void push(TokenKind kind, std::string text) { tokens_.push_back({kind, line_, std::move(text)}); }

  char at(std::size_t position) const {
    return position < source_.size() ? source_[position] : '\0';
  }
  bool starts_with(std::size_t position, std::string_view text) const {
    return source_.compare(position, text.size(), text) == 0;
  }

  std::size_t skip_space(std::size_t position) const {
    while (position < source_.size()) {
      std::size_t next = position;
      if (!is_space(next_code_point(source_, next))) break;
      position = next;
    }
    return position;
  }

  void advance_to(std::size_t position) {
    line_ +=
        static_cast<int>(std::count(source_.begin() + static_cast<std::ptrdiff_t>(position_),
                                    source_.begin() + static_cast<std::ptrdiff_t>(position), '\n'));
    position_ = position;
  }
  // The same for the end of a tag or token, which decides what lstrip sees next.
  void consume_to(std::size_t position) {
    if (position > position_) line_starting_ = source_[position - 1] == '\n';
    advance_to(position);
  }

  // The text before a tag, after the white space rules.
  std::string_view trimmed_text(std::string_view text, char sign, bool is_variable) const {
    if (sign == '-') return strip_space(text, Side::kRight);
    if (sign == '+' || is_variable) return text;
    const std::size_t newline = text.rfind('\n');
    const std::size_t line_begin = newline == std::string_view::npos ? 0 : newline + 1;
    if (line_begin == 0 && !line_starting_) return text;
    const std::string_view last_line = text.substr(line_begin);
    if (!strip_space(last_line, Side::kLeft).empty()) return text;
    return text.substr(0, line_begin);
  }

  void emit_text(std::size_t end, char sign, bool is_variable) {
    const std::string_view whole = std::string_view(source_).substr(position_, end - position_);
    const std::string_view text = trimmed_text(whole, sign, is_variable);
    if (!text.empty()) push(TokenKind::kData, std::string(text));
    advance_to(end);
  }

  // Text up to the next tag, then that tag.
  void lex_data() {
    std::size_t tag = position_;
    while (tag < source_.size() &&
           !(source_[tag] == '{' &&
             (at(tag + 1) == '%' || at(tag + 1) == '{' || at(tag + 1) == '#'))) {
      ++tag;
    }
    if (tag >= source_.size()) {
      push(TokenKind::kData, source_.substr(position_));
      advance_to(source_.size());
      return;
    }
    const char sign = at(tag + 2) == '-' || at(tag + 2) == '+' ? at(tag + 2) : '\0';
    const std::size_t inside = tag + (sign == '\0' ? 2 : 3);
    const char kind = source_[tag + 1];
    emit_text(tag, sign, kind == '{');
    if (kind == '#') return lex_comment(inside);
    if (kind == '{') {
      push(TokenKind::kVariableBegin, "{{");
      consume_to(inside);
      return lex_tag(true);
    }
    const std::size_t raw = raw_begin_end(inside);
    if (raw != 0) {
      consume_to(raw);
      return lex_raw();
    }
    push(TokenKind::kBlockBegin, "{%");
    consume_to(inside);
    lex_tag(false);
  }

  void lex_comment(std::size_t inside) {
    // Jinja2 lets a comment mark at the very end pass.
    if (inside == source_.size()) return consume_to(inside);
    const std::size_t close = source_.find("#}", inside);
    if (close == std::string::npos) return fail("a comment is not closed, add '#}'");
    std::size_t end = close + 2;
    const char mark = close > inside ? source_[close - 1] : '\0';
    if (mark == '-') {
      end = skip_space(end);
    } else if (mark != '+' && at(end) == '\n') {
      ++end;
    }
    consume_to(end);
  }

  // Position after "raw %}" when a raw block begins at `inside`, else 0.
  std::size_t raw_begin_end(std::size_t inside) const {
    std::size_t position = skip_space(inside);
    if (!starts_with(position, "raw")) return 0;
    position = skip_space(position + 3);
    if (starts_with(position, "-%}")) return skip_space(position + 3);
    return starts_with(position, "%}") ? position + 2 : 0;
  }

  void lex_raw() {
    for (std::size_t tag = source_.find("{%", position_); tag != std::string::npos;
         tag = source_.find("{%", tag + 1)) {
      const char sign = at(tag + 2) == '-' || at(tag + 2) == '+' ? at(tag + 2) : '\0';
      std::size_t end = skip_space(tag + (sign == '\0' ? 2 : 3));
      if (!starts_with(end, "endraw")) continue;
      end = block_end(skip_space(end + 6));
      if (end == 0) continue;
      emit_text(tag, sign, false);
      return consume_to(end);
    }
    fail("a raw block is not closed, add '{% endraw %}'");
  }

  // Position after "%}", "-%}" or "+%}" with what it swallows, or 0.
  std::size_t block_end(std::size_t position) const {
    if (starts_with(position, "+%}")) return position + 3;
    if (starts_with(position, "-%}")) return skip_space(position + 3);
    if (!starts_with(position, "%}")) return 0;
    return position + (at(position + 2) == '\n' ? 3 : 2);
  }

  std::size_t variable_end(std::size_t position) const {
    if (starts_with(position, "-}}")) return skip_space(position + 3);
    return starts_with(position, "}}") ? position + 2 : 0;
  }

  void lex_tag(bool is_variable) {
    const int opened_at = line_;
    open_brackets_.clear();
    while (position_ < source_.size()) {
      if (open_brackets_.empty()) {
        const std::size_t end = is_variable ? variable_end(position_) : block_end(position_);
        if (end != 0) {
          push(is_variable ? TokenKind::kVariableEnd : TokenKind::kBlockEnd,
               is_variable ? "}}" : "%}");
          return consume_to(end);
        }
      }
      const std::size_t after_space = skip_space(position_);
      if (after_space != position_) {
        consume_to(after_space);
        continue;
      }
      lex_token();
    }
    if (!status_.is_ok()) return;
    line_ = opened_at;
    fail(is_variable ? "an expression is not closed, add '}}'" : "a block is not closed, add '%}'");
  }

  void lex_token() {
    const char c = source_[position_];
    if (is_digit_char(c)) return lex_number();
    if (c == '\'' || c == '"') return lex_string();
    const std::size_t name_end = scan_name();
    if (name_end != position_) return take(TokenKind::kName, name_end);
    lex_operator();
  }

  void take(TokenKind kind, std::size_t end) {
    push(kind, source_.substr(position_, end - position_));
    consume_to(end);
  }

  std::size_t scan_name() const {
    std::size_t position = position_;
    while (position < source_.size()) {
      std::size_t next = position;
      if (!is_word(next_code_point(source_, next))) break;
      position = next;
    }
    return position;
  }

  // Digits with single underscores between them.
  template <typename IsDigit>
  std::size_t scan_digits(std::size_t position, IsDigit is_digit) const {
    while (is_digit(at(position)) || (at(position) == '_' && is_digit(at(position + 1)))) {
      ++position;
    }
    return position;
  }

  void lex_number() {
    const char prefix = static_cast<char>(at(position_ + 1) | 0x20);
    if (source_[position_] == '0' && (prefix == 'x' || prefix == 'o' || prefix == 'b')) {
      const auto digit = [prefix](char c) {
        if (prefix == 'b') return c == '0' || c == '1';
        if (prefix == 'o') return c >= '0' && c <= '7';
        return is_digit_char(c) || (c >= 'a' && c <= 'f') || (c >= 'A' && c <= 'F');
      };
      const std::size_t end = scan_digits(position_ + 2, digit);
      if (end > position_ + 2) return take(TokenKind::kInteger, end);
    }
    const bool after_dot = position_ > 0 && source_[position_ - 1] == '.';
    std::size_t end = scan_digits(position_, is_digit_char);
    const std::size_t whole_end = end;
    if (!after_dot) {
      if (at(end) == '.' && is_digit_char(at(end + 1))) end = scan_digits(end + 1, is_digit_char);
      if (at(end) == 'e' || at(end) == 'E') {
        const std::size_t digits = end + (at(end + 1) == '+' || at(end + 1) == '-' ? 2 : 1);
        if (is_digit_char(at(digits))) end = scan_digits(digits, is_digit_char);
      }
    }
    if (end != whole_end) return take(TokenKind::kFloat, end);
    // A leading zero stands alone, as in Python ("007" is not a number).
    if (source_[position_] == '0') {
      end = scan_digits(position_, [](char c) { return c == '0'; });
    }
    take(TokenKind::kInteger, end);
  }

  void lex_string() {
    const char quote = source_[position_];
    std::size_t end = position_ + 1;
    while (end < source_.size() && source_[end] != quote) end += source_[end] == '\\' ? 2 : 1;
    if (end >= source_.size()) return fail("a string is not closed");
    const std::string_view body =
        std::string_view(source_).substr(position_ + 1, end - position_ - 1);
    Result<std::string> text = decode_string_literal(body);
    if (!text) return fail(text.status().message());
    push(TokenKind::kString, std::move(text).value());
    consume_to(end + 1);
  }

  void lex_operator() {
    static constexpr std::array<std::string_view, 6> kLong = {"//", "**", "==", "!=", ">=", "<="};
    static constexpr std::string_view kShort = "+-/*%~[](){}><=.:|,;";
    for (const std::string_view text : kLong) {
      if (starts_with(position_, text)) return take(TokenKind::kOperator, position_ + 2);
    }
    const char c = source_[position_];
    if (kShort.find(c) == std::string_view::npos) {
      std::size_t next = position_;
      next_code_point(source_, next);
      return fail(
          fmt::format("unexpected character '{}'", source_.substr(position_, next - position_)));
    }
    if (c == '(' || c == '[' || c == '{') {
      open_brackets_ += c == '(' ? ')' : (c == '[' ? ']' : '}');
    } else if (c == ')' || c == ']' || c == '}') {
      if (open_brackets_.empty()) return fail(fmt::format("unexpected '{}'", c));
      const char expected = open_brackets_.back();
      open_brackets_.pop_back();
      if (c != expected) return fail(fmt::format("unexpected '{}', expected '{}'", c, expected));
    }
    take(TokenKind::kOperator, position_ + 1);
  }

  const std::string source_;
  std::size_t position_ = 0;
  int line_ = 1;
  bool line_starting_ = true;
  std::string open_brackets_;
  std::vector<Token> tokens_;
  Status status_;
};

}  // namespace

Result<std::vector<Token>> tokenize(std::string_view source) {
  return Lexer(normalize(source)).run();
}

}  // namespace motley::jinja
