// Sizes, and words that must not appear.
#include <algorithm>
#include <cctype>
#include <regex>

#include "tidy/checks.h"
#include "tidy/functions.h"
#include "tidy/rules.h"

namespace motley::tidy {
namespace {

// Columns as a reader counts them: UTF-8 continuation bytes take none.
int columns_of(const std::string& line) {
  return static_cast<int>(std::count_if(line.begin(), line.end(), [](char c) {
    return (static_cast<unsigned char>(c) & 0xC0U) != 0x80U;
  }));
}

void check_columns(const Source& source, Findings& findings) {
  for (size_t i = 0; i < source.lines.size(); ++i) {
    // In the middle of a raw string of a test nothing can be wrapped.
    const bool is_data = is_test(source) &&
                         source.code[i].find_first_not_of(' ') == std::string::npos &&
                         source.uncommented[i] == source.lines[i];
    if (is_data) continue;
    const int columns = columns_of(source.lines[i]);
    if (columns <= kMaxColumns) continue;
    findings.push_back(
        {source.path, static_cast<int>(i) + 1, "columns",
         std::to_string(columns) + " columns, at most " + std::to_string(kMaxColumns)});
  }
}

void check_pattern(const Source& source, const std::vector<std::string>& lines,
                   const std::regex& pattern, const char* rule, const std::string& message,
                   Findings& findings) {
  for (size_t i = 0; i < lines.size(); ++i) {
    std::smatch match;
    if (!std::regex_search(lines[i], match, pattern)) continue;
    findings.push_back({source.path, static_cast<int>(i) + 1, rule, match.str() + message});
  }
}

void check_family_names(const Source& source, Findings& findings) {
  const std::string module = module_of(source);
  const bool blind = std::find(kFamilyBlindModules.begin(), kFamilyBlindModules.end(), module) !=
                     kFamilyBlindModules.end();
  if (!blind || is_test(source)) return;
  std::string names;
  for (const std::string_view name : kFamilyNames) {
    names += (names.empty() ? "" : "|") + std::string(name);
  }
  // A comment may cite a family's paper or reference code as the source of the maths.
  check_pattern(source, source.uncommented, std::regex(names, std::regex::icase), "family",
                ": " + module + "/ serves every family and names none", findings);
}

}  // namespace

void check_size(const Source& source, Findings& findings) {
  const int lines = static_cast<int>(source.lines.size());
  if (lines >= kMaxFileLines) {
    findings.push_back(
        {source.path, 0, "file size",
         std::to_string(lines) + " lines, must be under " + std::to_string(kMaxFileLines)});
  }
  for (const Function& function : find_functions(source)) {
    const int length = function.last_line - function.first_line + 1;
    if (length < kMaxFunctionLines) continue;
    findings.push_back({source.path, function.first_line, "function size",
                        function.name + " has " + std::to_string(length) +
                            " lines, must be under " + std::to_string(kMaxFunctionLines)});
  }
  check_columns(source, findings);
}

void check_text(const Source& source, Findings& findings) {
  if (is_header(source) && std::none_of(source.code.begin(), source.code.end(),
                                        [](const auto& line) { return line == "#pragma once"; })) {
    findings.push_back({source.path, 0, "pragma once", "a header needs #pragma once"});
  }
  static const std::regex todo(R"(\b(TO)"
                               R"(DO|FIX)"
                               R"(ME|XX)"
                               R"(X)\b(?!\(#\d+\)))");
  check_pattern(source, source.lines, todo, "todo", " needs an issue number, as in WORD(#12)",
                findings);
  if (!module_of(source).empty() && !is_test(source) && !starts_with_any(source.path, kMayPrint)) {
    static const std::regex print(
        R"(\b(std::(cout|cerr|clog)|(fmt::print|f?printf|f?puts|putchar)\s*\())");
    check_pattern(source, source.code, print, "print",
                  ": library modules return text or log it (base/log.h)", findings);
  }
  check_family_names(source, findings);
}

void check_file(const Source& source, Findings& findings) {
  if (source.path.ends_with("CMakeLists.txt")) {
    check_cmake(source, findings);
    return;
  }
  if (!is_code(source)) return;
  check_layering(source, findings);
  check_libraries(source, findings);
  check_size(source, findings);
  check_text(source, findings);
}

}  // namespace motley::tidy
