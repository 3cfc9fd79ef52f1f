#include "tidy/source.h"

#include <algorithm>
#include <cctype>
#include <utility>

namespace motley::tidy {
namespace {

std::vector<std::string> split_lines(std::string_view text) {
  std::vector<std::string> lines;
  while (!text.empty()) {
    const size_t end = std::min(text.find('\n'), text.size());
    lines.emplace_back(text.substr(0, end));
    text.remove_prefix(std::min(end + 1, text.size()));
  }
  return lines;
}

// Replaces [begin, end) by spaces, keeping line ends so that line numbers stay true.
void blank(std::string& text, size_t begin, size_t end) {
  for (size_t i = begin; i < std::min(end, text.size()); ++i) {
    if (text[i] != '\n') text[i] = ' ';
  }
}

bool is_word(char c) {
  return std::isalnum(static_cast<unsigned char>(c)) != 0 || c == '_';
}

// End of the quoted literal that starts at `begin`, one past its closing quote.
size_t end_of_quoted(const std::string& text, size_t begin) {
  const char quote = text[begin];
  size_t i = begin + 1;
  while (i < text.size() && text[i] != quote && text[i] != '\n') i += text[i] == '\\' ? 2 : 1;
  return std::min(i + 1, text.size());
}

// R"tag( ... )tag" with `begin` at its quote.
size_t end_of_raw(const std::string& text, size_t begin) {
  const size_t open = text.find('(', begin);
  if (open == std::string::npos) return text.size();
  const std::string close = ")" + text.substr(begin + 1, open - begin - 1) + "\"";
  const size_t end = text.find(close, open);
  return end == std::string::npos ? text.size() : end + close.size();
}

std::string without_comments(std::string text, bool keep_literals) {
  size_t i = 0;
  while (i < text.size()) {
    size_t end = i + 1;
    if (text.compare(i, 2, "//") == 0) {
      end = std::min(text.find('\n', i), text.size());
      blank(text, i, end);
    } else if (text.compare(i, 2, "/*") == 0) {
      end = std::min(text.find("*/", i + 2), text.size() - 2) + 2;
      blank(text, i, end);
    } else if (text[i] == '"') {
      const bool raw = i > 0 && text[i - 1] == 'R' && (i < 2 || !is_word(text[i - 2]));
      end = raw ? end_of_raw(text, i) : end_of_quoted(text, i);
      if (!keep_literals) blank(text, i + 1, end - 1);
    } else if (text[i] == '\'' && (i == 0 || !is_word(text[i - 1]))) {  // not 1'000
      end = end_of_quoted(text, i);
      if (!keep_literals) blank(text, i + 1, end - 1);
    }
    i = end;
  }
  return text;
}

}  // namespace

Source make_source(std::string path, std::string_view text) {
  Source source;
  source.path = std::move(path);
  source.lines = split_lines(text);
  source.code = split_lines(without_comments(std::string(text), false));
  source.uncommented = split_lines(without_comments(std::string(text), true));
  return source;
}

bool is_test(const Source& source) {
  const std::string_view path = source.path;
  const std::string_view name = path.substr(path.rfind('/') + 1);
  return path.starts_with("tests/") || path.ends_with("_test.cpp") || path.ends_with("_fuzz.cpp") ||
         name.find("_test_util.") != std::string_view::npos || name.starts_with("test_");
}

bool is_code(const Source& source) {
  const std::string_view path = source.path;
  return path.ends_with(".h") || path.ends_with(".cpp") || path.ends_with(".cu") ||
         path.ends_with(".cuh");
}

bool is_header(const Source& source) {
  return source.path.ends_with(".h") || source.path.ends_with(".cuh");
}

std::string module_of(const Source& source) {
  constexpr std::string_view kRoot = "src/";
  if (!source.path.starts_with(kRoot)) return "";
  const size_t end = source.path.find('/', kRoot.size());
  if (end == std::string::npos) return "";
  return source.path.substr(kRoot.size(), end - kRoot.size());
}

bool starts_with_any(std::string_view text, const std::vector<std::string_view>& prefixes) {
  return std::any_of(prefixes.begin(), prefixes.end(),
                     [&](std::string_view prefix) { return text.starts_with(prefix); });
}

}  // namespace motley::tidy
