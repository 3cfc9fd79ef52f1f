// Who includes whom: modules in order, libraries behind their wrappers.
#include <algorithm>
#include <optional>
#include <regex>
#include <set>

#include "tidy/checks.h"
#include "tidy/rules.h"

namespace motley::tidy {
namespace {

struct Include {
  int line = 0;
  bool quoted = false;
  std::string path;
};

std::vector<Include> includes_of(const Source& source) {
  static const std::regex pattern(R"re(^\s*#\s*include\s*([<"])([^>"]+)[>"])re");
  std::vector<Include> includes;
  for (size_t i = 0; i < source.lines.size(); ++i) {
    if (source.code[i].find("include") == std::string::npos) continue;  // inside a comment
    std::smatch match;
    if (!std::regex_search(source.lines[i], match, pattern)) continue;
    includes.push_back({static_cast<int>(i) + 1, match[1] == "\"", match[2]});
  }
  return includes;
}

std::optional<size_t> rank_of(std::string_view module) {
  const auto found = std::find(kModules.begin(), kModules.end(), module);
  if (found == kModules.end()) return std::nullopt;
  return static_cast<size_t>(found - kModules.begin());
}

std::string first_folder(const std::string& path) {
  return path.substr(0, path.find('/'));
}

std::string order_message(const std::string& module, const std::string& used) {
  return "module " + module + " may not use " + used + ", which comes after it";
}

bool is_standard(const std::string& path) {
  static const std::regex c_header(
      "(assert|errno|float|inttypes|limits|locale|math|setjmp|stdarg|"
      "stddef|stdint|stdio|stdlib|string|time|wchar)\\.h");
  return path.find_first_of("./") == std::string::npos || std::regex_match(path, c_header) ||
         starts_with_any(path, kSystemHeaders);
}

}  // namespace

void check_layering(const Source& source, Findings& findings) {
  const std::string module = module_of(source);
  if (module.empty()) return;
  const auto own = rank_of(module);
  if (!own) {
    findings.push_back({source.path, 0, "layering", "folder " + module + " is not a known module"});
    return;
  }
  for (const Include& include : includes_of(source)) {
    if (!include.quoted) continue;
    const std::string used = first_folder(include.path);
    if (used == kTestSupportFolder && is_test(source)) continue;
    const auto rank = rank_of(used);
    if (!rank) {
      findings.push_back({source.path, include.line, "layering",
                          "\"" + include.path + "\" does not start with a module's folder"});
    } else if (*rank > *own) {
      findings.push_back({source.path, include.line, "layering", order_message(module, used)});
    }
  }
}

void check_libraries(const Source& source, Findings& findings) {
  for (const Include& include : includes_of(source)) {
    if (include.quoted || is_standard(include.path)) continue;
    if (starts_with_any(include.path, kTestLibraries)) {
      if (is_test(source)) continue;
      findings.push_back(
          {source.path, include.line, "library", "<" + include.path + "> belongs in tests only"});
      continue;
    }
    const auto rule =
        std::find_if(kLibraries.begin(), kLibraries.end(), [&](const LibraryRule& candidate) {
          return include.path.starts_with(candidate.include_prefix);
        });
    if (rule == kLibraries.end()) {
      findings.push_back({source.path, include.line, "library",
                          "<" + include.path + "> has no row in tests/tidy/rules.h"});
    } else if (!is_test(source) && !starts_with_any(source.path, rule->allowed)) {
      findings.push_back({source.path, include.line, "library",
                          "<" + include.path + "> may not be included here; use its wrapper (" +
                              std::string(rule->allowed.front()) + ")"});
    }
  }
}

void check_cmake(const Source& source, Findings& findings) {
  const std::string module = module_of(source);
  const auto own = rank_of(module);
  if (!own) return;
  static const std::regex pattern("motley_([a-z]+)");
  for (size_t i = 0; i < source.lines.size(); ++i) {
    const std::string& line = source.lines[i];
    for (std::sregex_iterator it(line.begin(), line.end(), pattern), end; it != end; ++it) {
      const auto rank = rank_of((*it)[1].str());
      if (!rank || *rank <= *own) continue;
      findings.push_back({source.path, static_cast<int>(i) + 1, "layering",
                          order_message(module, (*it)[1].str())});
    }
  }
}

}  // namespace motley::tidy
