// motley_tidy ROOT: checks the sources of the repository at ROOT against tests/tidy/rules.h.
#include <algorithm>
#include <filesystem>
#include <fstream>
#include <iostream>
#include <iterator>

#include "tidy/checks.h"

namespace motley::tidy {
namespace {

namespace fs = std::filesystem;

bool is_source(const fs::path& path) {
  const std::string ending = path.extension().string();
  return ending == ".h" || ending == ".cpp" || ending == ".cu" || ending == ".cuh" ||
         path.filename() == "CMakeLists.txt";
}

std::vector<Source> read_tree(const fs::path& root) {
  std::vector<fs::path> paths;
  for (const char* folder : {"src", "tests", "bench"}) {
    if (!fs::is_directory(root / folder)) continue;
    for (const auto& entry : fs::recursive_directory_iterator(root / folder)) {
      if (entry.is_regular_file() && is_source(entry.path())) paths.push_back(entry.path());
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

int run(const fs::path& root) {
  const std::vector<Source> sources = read_tree(root);
  Findings findings;
  for (const Source& source : sources) check_file(source, findings);
  const TreeReport report = measure(sources);
  check_tree(report, findings);
  for (const Finding& finding : findings) {
    std::cout << finding.path << ':' << finding.line << ": " << finding.rule << ": "
              << finding.message << '\n';
  }
  std::cout << report.to_string() << findings.size() << " findings\n";
  return findings.empty() ? 0 : 1;
}

}  // namespace
}  // namespace motley::tidy

int main(int argc, char** argv) {
  if (argc != 2) {
    std::cerr << "usage: motley_tidy ROOT\n";
    return 2;
  }
  return motley::tidy::run(argv[1]);
}
