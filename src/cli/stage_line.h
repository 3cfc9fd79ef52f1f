// One line on a terminal's standard error that says what is being done, gone when it is over.
// Thread rule: one thread.
#pragma once

#include <string>

#include "cli/console.h"

namespace motley {

class StageLine {
 public:
  explicit StageLine(Console& console) : console_(console) {}
  ~StageLine() { show(""); }
  StageLine(const StageLine&) = delete;
  StageLine& operator=(const StageLine&) = delete;

  // Nothing at all where standard error is no terminal.
  void show(const std::string& stage) {
    if (console_.err_is_terminal()) console_.err("\r\x1b[K" + stage);
  }

 private:
  Console& console_;
};

}  // namespace motley
