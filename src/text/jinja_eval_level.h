// Counts one level of evaluation for as long as it lives.
#pragma once

#include <fmt/format.h>

#include "text/jinja_runtime.h"

namespace motley::jinja {

class EvaluationLevel {
 public:
  EvaluationLevel(Runtime& runtime, int& depth) : depth_(depth) {
    ok_ = ++depth_ <= runtime.limits().max_evaluation_depth;
    if (!ok_) {
      runtime.fail_limit(fmt::format("evaluation is nested more than {} deep",
                                     runtime.limits().max_evaluation_depth));
    }
  }
  ~EvaluationLevel() { --depth_; }
  EvaluationLevel(const EvaluationLevel&) = delete;
  EvaluationLevel& operator=(const EvaluationLevel&) = delete;

  bool ok() const { return ok_; }

 private:
  int& depth_;
  bool ok_ = true;
};

}  // namespace motley::jinja
