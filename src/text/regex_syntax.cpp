#include "text/regex_syntax.h"

#include <fmt/format.h>

#include <algorithm>
#include <optional>
#include <vector>

#include "text/regex_class.h"
#include "text/utf8.h"

namespace motley {
namespace {

bool is_digit(char c) {
  return c >= '0' && c <= '9';
}

class Translator {
 public:
  explicit Translator(std::string_view pattern) : in_(pattern) {}

  Result<std::string> run() {
    while (!in_.at_end()) MOTLEY_RETURN_IF_ERROR(step());
    if (!group_starts_.empty()) return in_.refuse("a group that is never closed");
    return std::move(out_);
  }

 private:
  Status step() {
    switch (in_.peek()) {
      case '\\':
        return escape();
      case '[': {
        MOTLEY_ASSIGN_OR_RETURN(const std::string atom, translate_class(in_, 0));
        emit_atom(atom);
        return Status::ok();
      }
      case '(':
        return open_group();
      case ')':
        return close_group();
      case '|':
        in_.take();
        out_ += '|';
        atom_start_.reset();
        return Status::ok();
      case '^':
      case '$':
        out_ += in_.take();
        atom_start_.reset();
        return Status::ok();
      case '.':
        in_.take();
        emit_atom(".");
        return Status::ok();
      case '*':
      case '+':
      case '?':
        return simple_quantifier();
      case '{':
        return interval();
      default:
        emit_atom(pcre2_literal(in_.take_code_point()));
        return Status::ok();
    }
  }

  void emit_atom(std::string_view atom) {
    atom_start_ = out_.size();
    out_ += atom;
  }

  Status escape() {
    const size_t start = in_.position();
    in_.take();
    if (in_.at_end()) return in_.refuse("a backslash at the end");
    const char name = in_.peek();
    if (name == 'A' || name == 'z' || name == 'Z') {
      in_.take();
      out_ += {'\\', name};
      atom_start_.reset();
      return Status::ok();
    }
    in_.seek(start);
    MOTLEY_ASSIGN_OR_RETURN(const ClassItem item, read_escape(in_, EscapePlace::kOutside));
    emit_atom(item.is_set ? "[" + item.set + "]" : pcre2_literal(item.literal));
    return Status::ok();
  }

  Status open_group() {
    static constexpr std::string_view kPrefixes[] = {
        "(?:", "(?=", "(?!", "(?<=", "(?<!", "(?>", "(?i:", "(?-i:"};
    if (group_starts_.size() >= static_cast<size_t>(kMaxPatternDepth)) {
      return in_.refuse(fmt::format("groups nested deeper than {}", kMaxPatternDepth));
    }
    std::string_view prefix = "(";
    for (const std::string_view known : kPrefixes) {
      if (in_.rest().starts_with(known)) prefix = known;
    }
    if (prefix == "(" && (in_.rest().starts_with("(?") || in_.rest().starts_with("(*"))) {
      return in_.refuse(fmt::format("the group '{}'", printable_excerpt(in_.rest(), 4)));
    }
    const bool is_assertion = prefix.find_first_of("=!") != std::string_view::npos;
    group_starts_.push_back({out_.size(), is_assertion});
    out_ += prefix == "(" ? "(?:" : prefix;
    in_.skip(prefix.size());
    atom_start_.reset();
    return Status::ok();
  }

  Status close_group() {
    if (group_starts_.empty()) return in_.refuse("a ')' without a '('");
    in_.take();
    out_ += ')';
    const Group group = group_starts_.back();
    group_starts_.pop_back();
    atom_start_.reset();
    if (!group.is_assertion) atom_start_ = group.start;
    return Status::ok();
  }

  Status simple_quantifier() {
    if (!atom_start_) return in_.refuse("a quantifier with nothing to repeat");
    out_ += in_.take();
    if (!in_.at_end() && (in_.peek() == '?' || in_.peek() == '+')) out_ += in_.take();
    atom_start_.reset();
    return Status::ok();
  }

  // Reads "{n}", "{n,}", "{n,m}" or "{,m}"; anything else is a literal brace.
  Status interval() {
    const size_t start = in_.position();
    in_.take();
    const std::optional<int> low = number();
    std::optional<int> high = low;
    const bool has_comma = !in_.at_end() && in_.peek() == ',';
    if (has_comma) {
      in_.take();
      high = number();
    }
    if (in_.at_end() || in_.peek() != '}' || (!low && !high)) {
      in_.seek(start);
      emit_atom(pcre2_literal(in_.take_code_point()));
      return Status::ok();
    }
    in_.take();
    if (!atom_start_) return in_.refuse("an interval with nothing to repeat");
    const bool open_ended = has_comma && !high;
    if (low.value_or(0) > kMaxPatternRepeat || high.value_or(0) > kMaxPatternRepeat) {
      return in_.refuse(fmt::format("a repeat count above {}", kMaxPatternRepeat));
    }
    if (high && low.value_or(0) > *high) return in_.refuse("an interval that counts down");
    std::string text = fmt::format("{{{},", low.value_or(0));
    if (!open_ended) text += std::to_string(*high);
    out_ += text + "}";
    return interval_suffix(has_comma);
  }

  Status interval_suffix(bool has_comma) {
    if (!in_.at_end() && in_.peek() == '?') {
      if (!has_comma) return in_.refuse("'{n}?'");
      out_ += in_.take();
    } else if (!in_.at_end() && in_.peek() == '+') {
      in_.take();
      out_.insert(*atom_start_, "(?:");
      out_ += ")+";
    }
    atom_start_.reset();
    return Status::ok();
  }

  std::optional<int> number() {
    if (in_.at_end() || !is_digit(in_.peek())) return std::nullopt;
    int value = 0;
    while (!in_.at_end() && is_digit(in_.peek())) {
      value = std::min(value * 10 + (in_.take() - '0'), kMaxPatternRepeat + 1);
    }
    return value;
  }

  struct Group {
    size_t start;
    bool is_assertion;
  };

  PatternReader in_;
  std::string out_;
  std::optional<size_t> atom_start_;  // where a quantifier's operand begins in out_
  std::vector<Group> group_starts_;
};

}  // namespace

Result<std::string> pcre2_pattern_of_oniguruma(std::string_view pattern) {
  if (pattern.size() > kMaxPatternBytes) {
    return unsupported(fmt::format("a regex of {} bytes is over the limit of {}", pattern.size(),
                                   kMaxPatternBytes));
  }
  if (!is_valid_utf8(pattern)) return corrupt("a regex must be UTF-8");
  return Translator(pattern).run();
}

}  // namespace motley
