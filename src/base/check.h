// Checks for bugs in motley itself. A failed check prints the place and ends the process; it must
// never be reachable from user input (that is what base/status.h is for).
#pragma once

#include <string_view>

namespace motley {

[[noreturn]] void check_failed(const char* file, int line, const char* condition,
                               std::string_view message);

}  // namespace motley

#define MOTLEY_CHECK(condition, message)                                 \
  do {                                                                   \
    if (!(condition)) [[unlikely]] {                                     \
      ::motley::check_failed(__FILE__, __LINE__, #condition, (message)); \
    }                                                                    \
  } while (false)
