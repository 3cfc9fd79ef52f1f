#include "text/regex_class.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <optional>
#include <utility>
#include <vector>

#include "text/regex_syntax.h"
#include "text/utf8.h"

namespace motley {
namespace {

constexpr std::string_view kSpace =
    "\\x09-\\x0d\\x20\\x85\\xa0\\x{1680}\\x{2000}-\\x{200a}\\x{2028}\\x{2029}\\x{202f}\\x{205f}"
    "\\x{3000}";
constexpr std::string_view kNotSpace =
    "\\x00-\\x08\\x0e-\\x1f\\x21-\\x84\\x86-\\x9f\\xa1-\\x{167f}\\x{1681}-\\x{1fff}"
    "\\x{200b}-\\x{2027}\\x{202a}-\\x{202e}\\x{2030}-\\x{205e}\\x{2060}-\\x{2fff}"
    "\\x{3001}-\\x{10ffff}";
constexpr std::string_view kHex = "0-9A-Fa-f";
constexpr std::string_view kNotHex = "\\x00-\\x2f\\x3a-\\x40\\x47-\\x60\\x67-\\x{10ffff}";
// Oniguruma's \w takes in superscripts and fractions of Latin-1 outside a class, not inside one.
constexpr std::string_view kWordInClass = "\\p{Alphabetic}\\p{M}\\p{Nd}\\p{Pc}";
constexpr std::string_view kWordOutside =
    "\\p{Alphabetic}\\p{M}\\p{Nd}\\p{Pc}\\xb2\\xb3\\xb9\\xbc-\\xbe";

std::string canonical_name(std::string_view name) {
  std::string canonical;
  for (const char c : name) {
    if (c == ' ' || c == '-' || c == '_') continue;
    canonical += (c >= 'A' && c <= 'Z') ? static_cast<char>(c - 'A' + 'a') : c;
  }
  return canonical;
}

// The PCRE2 name of a general category in its short or long Oniguruma spelling.
std::optional<std::string> general_category(const std::string& canonical) {
  static constexpr std::array<std::pair<std::string_view, std::string_view>, 10> kLong = {{
      {"letter", "L"},
      {"mark", "M"},
      {"number", "N"},
      {"punctuation", "P"},
      {"symbol", "S"},
      {"separator", "Z"},
      {"other", "C"},
      {"any", "Any"},
      {"lc", "L&"},
      {"alphabetic", "Alphabetic"},
  }};
  static constexpr std::array<std::string_view, 37> kShort = {
      "L",  "Lu", "Ll", "Lt", "Lm", "Lo", "M",  "Mn", "Mc", "Me", "N",  "Nd", "Nl",
      "No", "P",  "Pc", "Pd", "Ps", "Pe", "Pi", "Pf", "Po", "S",  "Sm", "Sc", "Sk",
      "So", "Z",  "Zs", "Zl", "Zp", "C",  "Cc", "Cf", "Co", "Cs", "Cn"};
  for (const auto& [from, to] : kLong) {
    if (canonical == from) return std::string(to);
  }
  for (const std::string_view name : kShort) {
    if (canonical == canonical_name(name)) return std::string(name);
  }
  return std::nullopt;
}

// "{Name}" or "{^Name}" after \p or \P.
Result<std::string> property(PatternReader& in, bool negated) {
  if (in.at_end() || in.peek() != '{') return in.refuse("\\p without {name}");
  const size_t close = in.rest().find('}');
  if (close == std::string_view::npos || close > 64) return in.refuse("\\p{ without its }");
  std::string_view name = in.rest().substr(1, close - 1);
  if (name.starts_with('^')) {
    negated = !negated;
    name.remove_prefix(1);
  }
  const bool is_plain = !name.empty() && std::all_of(name.begin(), name.end(), [](char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_' || c == ' ' || c == '-';
  });
  if (!is_plain) return in.refuse(fmt::format("the property '{}'", printable_excerpt(name)));
  in.skip(close + 1);
  const std::string canonical = canonical_name(name);
  if (canonical == "space" || canonical == "whitespace") {
    return std::string(negated ? kNotSpace : kSpace);
  }
  const std::string_view p = negated ? "\\P{" : "\\p{";
  if (const auto category = general_category(canonical)) return fmt::format("{}{}}}", p, *category);
  return fmt::format("{}sc:{}}}", p, name);
}

std::optional<unsigned> hex_digit(char c) {
  if (c >= '0' && c <= '9') return static_cast<unsigned>(c - '0');
  if (c >= 'a' && c <= 'f') return static_cast<unsigned>(c - 'a' + 10);
  if (c >= 'A' && c <= 'F') return static_cast<unsigned>(c - 'A' + 10);
  return std::nullopt;
}

Result<ClassItem> hex_literal(PatternReader& in, size_t min_digits, size_t max_digits) {
  const bool braced = !in.at_end() && in.peek() == '{';
  if (braced) {
    in.take();
    min_digits = 1;
    max_digits = 6;
  }
  char32_t value = 0;
  size_t digits = 0;
  while (digits < max_digits && !in.at_end()) {
    const auto digit = hex_digit(in.peek());
    if (!digit) break;
    value = value * 16 + *digit;
    in.take();
    ++digits;
  }
  if (digits < min_digits) return in.refuse("a hexadecimal escape with too few digits");
  if (braced) {
    if (in.at_end() || in.peek() != '}') return in.refuse("\\x{ without its }");
    in.take();
  }
  if (value > 0x10FFFF || (value >= 0xD800 && value <= 0xDFFF)) {
    return in.refuse("an escape outside Unicode");
  }
  return ClassItem{false, value, {}};
}

ClassItem set_item(std::string_view set) {
  return {true, 0, std::string(set)};
}
ClassItem literal_item(char32_t literal) {
  return {false, literal, {}};
}

}  // namespace

char32_t PatternReader::take_code_point() {
  const Utf8Step step = next_utf8(rest());
  at_ += step.length;
  return step.code_point;
}

Status PatternReader::refuse(std::string_view what) const {
  return unsupported(
      fmt::format("the regex uses {} near byte {}, which is not supported", what, at_));
}

std::string pcre2_literal(char32_t code_point) {
  const bool is_plain = (code_point >= '0' && code_point <= '9') ||
                        (code_point >= 'a' && code_point <= 'z') ||
                        (code_point >= 'A' && code_point <= 'Z');
  if (is_plain) return {static_cast<char>(code_point)};
  return fmt::format("\\x{{{:x}}}", static_cast<uint32_t>(code_point));
}

Result<ClassItem> read_escape(PatternReader& in, EscapePlace place) {
  in.take();
  if (in.at_end()) return in.refuse("a backslash at the end");
  const bool in_class = place == EscapePlace::kInClass;
  const char32_t name = in.take_code_point();
  switch (name) {
    case 's':
      return set_item(kSpace);
    case 'S':
      return set_item(kNotSpace);
    case 'd':
      return set_item("\\p{Nd}");
    case 'D':
      return set_item("\\P{Nd}");
    case 'h':
      return set_item(kHex);
    case 'H':
      return set_item(kNotHex);
    case 'w':
      return set_item(in_class ? kWordInClass : kWordOutside);
    case 'W':
      if (in_class) return in.refuse("\\W in a class");
      return set_item(fmt::format("^{}", kWordOutside));
    case 'p':
    case 'P': {
      MOTLEY_ASSIGN_OR_RETURN(const std::string set, property(in, name == 'P'));
      return set_item(set);
    }
    case 'n':
      return literal_item('\n');
    case 'r':
      return literal_item('\r');
    case 't':
      return literal_item('\t');
    case 'f':
      return literal_item('\f');
    case 'v':
      return literal_item('\v');
    case 'a':
      return literal_item('\a');
    case 'e':
      return literal_item(0x1B);
    case 'x':
      return hex_literal(in, 1, 2);
    case 'u':
      return hex_literal(in, 4, 4);
    default:
      break;
  }
  const bool is_named =
      (name >= '0' && name <= '9') || (name >= 'a' && name <= 'z') || (name >= 'A' && name <= 'Z');
  if (is_named) return in.refuse(fmt::format("the escape '\\{}'", static_cast<char>(name)));
  return literal_item(name);
}

namespace {

// One side of && in a class.
struct Operand {
  std::string content;                    // the inside of a PCRE2 class
  std::vector<std::string> alternatives;  // nested classes

  bool empty() const { return content.empty() && alternatives.empty(); }
  bool is_simple() const { return alternatives.empty(); }
  std::string expression() const {
    if (is_simple()) return "[" + content + "]";
    std::string out = "(?:";
    if (!content.empty()) out += "[" + content + "]|";
    for (size_t i = 0; i < alternatives.size(); ++i) {
      if (i > 0) out += '|';
      out += alternatives[i];
    }
    return out + ")";
  }
};

class ClassParser {
 public:
  ClassParser(PatternReader& in, int depth) : in_(in), depth_(depth) {}

  Result<std::string> run() {
    if (depth_ > kMaxPatternDepth) {
      return in_.refuse(fmt::format("classes nested deeper than {}", kMaxPatternDepth));
    }
    in_.take();
    const bool negated = !in_.at_end() && in_.peek() == '^';
    if (negated) in_.take();
    operands_.emplace_back();
    bool first = true;
    while (true) {
      if (in_.at_end()) return in_.refuse("a class that is never closed");
      if (in_.peek() == ']' && !first) break;
      MOTLEY_RETURN_IF_ERROR(member());
      first = false;
    }
    in_.take();
    for (const Operand& operand : operands_) {
      if (operand.empty()) return in_.refuse("an empty class or operand of &&");
    }
    return finish(negated);
  }

 private:
  std::string finish(bool negated) const {
    const Operand& first = operands_.front();
    if (operands_.size() == 1 && first.is_simple()) {
      return (negated ? "[^" : "[") + first.content + "]";
    }
    std::string positive = first.expression();
    if (operands_.size() > 1) {
      std::string conditions;
      for (size_t i = 1; i < operands_.size(); ++i) {
        conditions += "(?=" + operands_[i].expression() + ")";
      }
      positive = "(?:" + conditions + positive + ")";
    }
    return negated ? "(?:(?!" + positive + ")(?s:.))" : positive;
  }

  Status member() {
    const std::string_view rest = in_.rest();
    if (rest.starts_with("&&")) {
      in_.skip(2);
      operands_.emplace_back();
      return Status::ok();
    }
    if (rest.starts_with("[:")) return in_.refuse("a POSIX bracket");
    if (rest.starts_with('[')) {
      MOTLEY_ASSIGN_OR_RETURN(std::string nested, translate_class(in_, depth_ + 1));
      operands_.back().alternatives.push_back(std::move(nested));
      return refuse_dash("a nested class");
    }
    MOTLEY_ASSIGN_OR_RETURN(const ClassItem item, read_item());
    if (item.is_set) {
      operands_.back().content += item.set;
      return refuse_dash("a set");
    }
    return literal_or_range(item.literal);
  }

  Result<ClassItem> read_item() {
    if (in_.peek() == '\\') return read_escape(in_, EscapePlace::kInClass);
    return ClassItem{false, in_.take_code_point(), {}};
  }

  // True at a '-' that starts a range, that is, one that does not end the class.
  bool at_range_dash() const {
    const std::string_view rest = in_.rest();
    return rest.size() >= 2 && rest[0] == '-' && rest[1] != ']' &&
           !rest.substr(1).starts_with("&&");
  }

  Status refuse_dash(std::string_view after) const {
    if (at_range_dash()) return in_.refuse(fmt::format("a range that starts with {}", after));
    return Status::ok();
  }

  Status literal_or_range(char32_t low) {
    std::string& content = operands_.back().content;
    if (!at_range_dash()) {
      content += pcre2_literal(low);
      return Status::ok();
    }
    in_.take();
    if (in_.peek() == '[') return in_.refuse("a range that ends with a nested class");
    MOTLEY_ASSIGN_OR_RETURN(const ClassItem high, read_item());
    if (high.is_set) return in_.refuse("a range that ends with a set");
    if (high.literal < low) return in_.refuse("a range that counts down");
    content += pcre2_literal(low) + "-" + pcre2_literal(high.literal);
    return refuse_dash("a range");
  }

  PatternReader& in_;
  int depth_;
  std::vector<Operand> operands_;
};

}  // namespace

Result<std::string> translate_class(PatternReader& in, int depth) {
  return ClassParser(in, depth).run();
}

}  // namespace motley
