// Figures of the whole tree: sizes and the share of tests.
#include <algorithm>
#include <cstdio>

#include "tidy/checks.h"
#include "tidy/rules.h"

namespace motley::tidy {
namespace {

std::string percent(double share) {
  char text[32];
  std::snprintf(text, sizeof text, "%.1f%%", 100 * share);
  return text;
}

}  // namespace

double TreeReport::test_share() const {
  return lines == 0 ? 0 : static_cast<double>(test_lines) / lines;
}

std::string TreeReport::to_string() const {
  std::string text = std::to_string(files) + " files, " + std::to_string(lines) + " lines, " +
                     percent(test_share()) + " tests, median file " + std::to_string(median_lines) +
                     " lines, largest " + std::to_string(largest_lines) + " (" + largest_path +
                     ")\n";
  for (const std::string& path : over_soft_limit) {
    text += "warning: " + path + " has " + std::to_string(kSoftFileLines) + " lines or more\n";
  }
  if (test_share() < kWantedTestShare) {
    text += "warning: tests are below " + percent(kWantedTestShare) + " of the lines\n";
  }
  return text;
}

TreeReport measure(const std::vector<Source>& sources) {
  TreeReport report;
  std::vector<int> sizes;
  for (const Source& source : sources) {
    if (source.path.ends_with("CMakeLists.txt")) continue;
    const int lines = static_cast<int>(source.lines.size());
    report.lines += lines;
    if (is_test(source)) report.test_lines += lines;
    if (!is_code(source)) continue;
    sizes.push_back(lines);
    if (lines >= kSoftFileLines) report.over_soft_limit.push_back(source.path);
    if (lines > report.largest_lines) {
      report.largest_lines = lines;
      report.largest_path = source.path;
    }
  }
  report.files = static_cast<int>(sizes.size());
  if (sizes.empty()) return report;
  const auto middle = sizes.begin() + static_cast<std::ptrdiff_t>(sizes.size() / 2);
  std::nth_element(sizes.begin(), middle, sizes.end());
  report.median_lines = *middle;
  return report;
}

void check_tree(const TreeReport& report, Findings& findings) {
  if (report.files == 0) {
    findings.push_back({".", 0, "tree", "no source files found"});
    return;
  }
  if (report.median_lines >= kMaxMedianFileLines) {
    findings.push_back({".", 0, "median file",
                        std::to_string(report.median_lines) + " lines, must be under " +
                            std::to_string(kMaxMedianFileLines)});
  }
  if (report.test_share() < kLeastTestShare) {
    findings.push_back({".", 0, "test share",
                        percent(report.test_share()) + " of the lines are tests, at least " +
                            percent(kLeastTestShare) + " must be"});
  }
}

}  // namespace motley::tidy
