// motley_tidy files|figures ROOT: checks the repository at ROOT against tests/tidy/rules.h, each
// file by itself or the figures of the whole.
#include <algorithm>
#include <filesystem>
#include <fstream>
#include <iostream>
#include <iterator>
#include <set>
#include <string>

#include "tidy/checks.h"

namespace motley::tidy {
namespace {

namespace fs = std::filesystem;

// Longer test data is generated, not written.
constexpr size_t kMaxCaseBytes = 64 << 10;

bool is_wanted(const fs::directory_entry& entry) {
  if (!entry.is_regular_file()) return false;
  static const std::set<std::string> endings = {".h", ".cpp", ".cu", ".cuh", ".sh", ".mjs", ".py"};
  const std::string ending = entry.path().extension().string();
  return endings.contains(ending) || entry.path().filename() == "CMakeLists.txt" ||
         (ending == ".case" && entry.file_size() <= kMaxCaseBytes);
}

std::vector<Source> read_tree(const fs::path& root) {
  std::vector<fs::path> paths;
  for (const char* folder : {"src", "tests", "bench"}) {
    if (!fs::is_directory(root / folder)) continue;
    for (const auto& entry : fs::recursive_directory_iterator(root / folder)) {
      if (is_wanted(entry)) paths.push_back(entry.path());
    }
  }
  std::sort(paths.begin(), paths.end());
  std::vector<Source> sources;
  for (const fs::path& path : paths) {
    std::ifstream file(path, std::ios::binary);
    const std::string text(std::istreambuf_iterator<char>(file), {});
    sources.push_back(make_source(path.lexically_relative(root).generic_string(), text));
  }
  return sources;
}

int run(const std::string& what, const fs::path& root) {
  const std::vector<Source> sources = read_tree(root);
  const TreeReport report = measure(sources);
  Findings findings;
  if (what == "files") {
    for (const Source& source : sources) check_file(source, findings);
  } else {
    std::cout << report.to_string();
    check_tree(report, findings);
  }
  for (const Finding& finding : findings) {
    std::cout << finding.path << ':' << finding.line << ": " << finding.rule << ": "
              << finding.message << '\n';
  }
  std::cout << findings.size() << " findings in " << report.files << " files\n";
  return findings.empty() && report.files > 0 ? 0 : 1;
}

}  // namespace
}  // namespace motley::tidy

int main(int argc, char** argv) {
  const std::string what = argc == 3 ? argv[1] : "";
  if (what != "files" && what != "figures") {
    std::cerr << "usage: motley_tidy files|figures ROOT\n";
    return 2;
  }
  return motley::tidy::run(what, argv[2]);
}
