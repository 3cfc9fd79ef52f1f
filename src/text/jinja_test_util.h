// Helpers of the template tests.
#pragma once

#include <span>
#include <string>
#include <string_view>

#include "text/jinja_limits.h"

namespace motley::jinja {

// Output of a template over JSON data; an error comes back as "error: " and its message. The time
// is 2 January 2024, 03:04:05.
std::string render(std::string_view source, std::string_view json = "{}",
                   const JinjaLimits& limits = {});

struct ExpressionCase {
  std::string_view expression;
  std::string_view output;
};

// Evaluates each over a small fixed context (see kSampleContext). "error" expects any error.
void expect_expressions(std::span<const ExpressionCase> cases);

extern const std::string_view kSampleContext;

}  // namespace motley::jinja
