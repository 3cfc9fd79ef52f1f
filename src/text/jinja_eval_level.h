// Counts one level of nesting for as long as it lives.
#pragma once

#include <fmt/format.h>

#include "text/jinja_runtime.h"

namespace motley::jinja {

class EvaluationLevel {
 public:
  // `what` is nested, for the error.
  EvaluationLevel(Runtime& runtime, int& depth, int limit, std::string_view what) : depth_(depth) {
    ok_ = ++depth_ <= limit;
    if (!ok_) runtime.fail_limit(fmt::format("{} nested more than {} deep", what, limit));
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
