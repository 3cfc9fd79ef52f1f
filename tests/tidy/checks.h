// The checks of the tidy test. Each looks at one file or at the whole tree and adds its findings.
#pragma once

#include <string>
#include <vector>

#include "tidy/source.h"

namespace motley::tidy {

struct Finding {
  std::string path;
  int line = 0;  // 0: the file or the tree as a whole
  std::string rule;
  std::string message;
};
using Findings = std::vector<Finding>;

void check_layering(const Source& source, Findings& findings);
void check_libraries(const Source& source, Findings& findings);
void check_size(const Source& source, Findings& findings);
void check_text(const Source& source, Findings& findings);
// Library order in a module's CMakeLists.txt; `path` is src/MODULE/CMakeLists.txt.
void check_cmake(const Source& source, Findings& findings);

// All of the above on one file.
void check_file(const Source& source, Findings& findings);

struct TreeReport {
  int files = 0;
  int lines = 0;
  int test_lines = 0;
  int median_lines = 0;
  int largest_lines = 0;
  std::string largest_path;
  std::vector<std::string> over_soft_limit;

  double test_share() const;
  std::string to_string() const;
};
TreeReport measure(const std::vector<Source>& sources);
void check_tree(const TreeReport& report, Findings& findings);

}  // namespace motley::tidy
