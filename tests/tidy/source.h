// A source file as the checks see it: its lines, and the same lines without comments and literals.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace motley::tidy {

struct Source {
  std::string path;                      // from the repository root, with '/'
  std::vector<std::string> lines;        // as written
  std::vector<std::string> code;         // comments, strings and characters replaced by spaces
  std::vector<std::string> uncommented;  // only comments replaced
};

Source make_source(std::string path, std::string_view text);

// x_test.cpp, x_fuzz.cpp, x_test_util.h, test_x.h and all of tests/.
bool is_test(const Source& source);
bool is_code(const Source& source);           // C++ or CUDA; the rest is scripts and test cases
bool is_header(const Source& source);         // .h or .cuh
std::string module_of(const Source& source);  // "" outside src/

bool starts_with_any(std::string_view text, const std::vector<std::string_view>& prefixes);

}  // namespace motley::tidy
