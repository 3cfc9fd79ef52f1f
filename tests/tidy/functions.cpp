#include "tidy/functions.h"

#include <cctype>
#include <regex>
#include <utility>

namespace motley::tidy {
namespace {

enum class Scope { kOuter, kFunction, kOther };

bool has_word(const std::string& text, const char* word) {
  return std::regex_search(text, std::regex(std::string("\\b") + word + "\\b"));
}

// What a brace opens, from the text since the last statement or brace.
Scope classify(const std::string& header) {
  const size_t parenthesis = header.find('(');
  const std::string before = header.substr(0, parenthesis);
  if (has_word(before, "namespace") || has_word(before, "extern")) return Scope::kOuter;
  const bool is_type = has_word(before, "class") || has_word(before, "struct") ||
                       has_word(before, "union") || has_word(before, "enum");
  if (parenthesis == std::string::npos) return is_type ? Scope::kOuter : Scope::kOther;
  const bool assigns = before.find('=') != std::string::npos && !has_word(before, "operator");
  return assigns ? Scope::kOther : Scope::kFunction;
}

std::string name_in(const std::string& header) {
  std::smatch match;
  std::regex_search(header, match, std::regex("([~\\w:]+)\\s*\\("));
  return match.empty() ? "?" : match[1].str();
}

class Finder {
 public:
  std::vector<Function> run(const Source& source) {
    for (size_t i = 0; i < source.code.size(); ++i) {
      line_ = static_cast<int>(i) + 1;
      const std::string& code = source.code[i];
      const size_t first = code.find_first_not_of(" \t");
      const bool directive = continued_ || (first != std::string::npos && code[first] == '#');
      continued_ = directive && code.ends_with('\\');
      if (directive) continue;
      for (const char c : code) take(c);
      take(' ');
    }
    return std::move(found_);
  }

 private:
  void take(char c) {
    const bool space = std::isspace(static_cast<unsigned char>(c)) != 0;
    if (pending_end_ && !space) settle(c);
    if (c == '{') {
      open();
    } else if (c == '}') {
      close();
    } else if (inside_ == 0) {
      if (c == ';' && parentheses_ == 0) {
        header_.clear();
      } else if (!space || !header_.empty()) {
        if (header_.empty()) first_line_ = line_;
        if (c == '(') ++parentheses_;
        if (c == ')') --parentheses_;
        header_ += c;
      }
    }
  }

  void open() {
    if (inside_ > 0) {
      ++inside_;
      return;
    }
    if (parentheses_ > 0) {  // a braced default argument
      inside_ = 1;
      return;
    }
    const Scope scope = classify(header_);
    if (scope == Scope::kOuter) {
      header_.clear();
      return;
    }
    inside_ = 1;
    counts_ = scope == Scope::kFunction;
  }

  void close() {
    if (inside_ == 0) {
      header_.clear();
      return;
    }
    if (--inside_ == 0 && parentheses_ == 0) {
      pending_end_ = true;
      last_line_ = line_;
    }
  }

  // A body has closed and `next` follows: more of a constructor's initialisers, or the real end.
  void settle(char next) {
    pending_end_ = false;
    if (counts_ && (next == ',' || next == '{')) return;
    if (counts_) found_.push_back({name_in(header_), first_line_, last_line_});
    header_.clear();
  }

  std::vector<Function> found_;
  std::string header_;
  int line_ = 0;
  int first_line_ = 0;
  int last_line_ = 0;
  int inside_ = 0;       // braces open since the body or initialiser began
  int parentheses_ = 0;  // open in the header
  bool counts_ = false;  // the body is a function's
  bool pending_end_ = false;
  bool continued_ = false;  // in a macro of several lines
};

}  // namespace

std::vector<Function> find_functions(const Source& source) {
  Source padded = source;
  padded.code.emplace_back(";");  // settles a body that ends the file
  return Finder().run(padded);
}

}  // namespace motley::tidy
