// Finds function bodies by their braces; a heuristic that knows this repository's style only.
#pragma once

#include <string>
#include <vector>

#include "tidy/source.h"

namespace motley::tidy {

struct Function {
  std::string name;    // the last word before the parameter list
  int first_line = 0;  // from 1, where its declaration starts
  int last_line = 0;   // of its closing brace
};

std::vector<Function> find_functions(const Source& source);

}  // namespace motley::tidy
