#include "engine/sampling_params.h"

#include <fmt/format.h>

#include <cmath>

namespace motley {
namespace {

Status check_range(std::string_view name, double value, double low, double high) {
  if (std::isfinite(value) && value >= low && value <= high) return Status::ok();
  return invalid_argument(fmt::format("{} is {}, allowed are {} to {}", name, value, low, high));
}

}  // namespace

Status SamplingParams::validate(int64_t vocab_size) const {
  MOTLEY_RETURN_IF_ERROR(check_range("temperature", temperature, 0, 100));
  MOTLEY_RETURN_IF_ERROR(check_range("top_p", top_p, 0, 1));
  MOTLEY_RETURN_IF_ERROR(check_range("min_p", min_p, 0, 1));
  MOTLEY_RETURN_IF_ERROR(check_range("repetition_penalty", repetition_penalty, 0.01, 100));
  MOTLEY_RETURN_IF_ERROR(check_range("presence_penalty", presence_penalty, -100, 100));
  MOTLEY_RETURN_IF_ERROR(check_range("frequency_penalty", frequency_penalty, -100, 100));
  if (top_k < 0) return invalid_argument(fmt::format("top_k is {}, must not be negative", top_k));
  for (const auto& [token, bias] : logit_bias) {
    if (token < 0 || token >= vocab_size) {
      return invalid_argument(
          fmt::format("logit_bias names token {}, the vocabulary has {}", token, vocab_size));
    }
    MOTLEY_RETURN_IF_ERROR(check_range("logit_bias value", bias, -1000, 1000));
  }
  return Status::ok();
}

}  // namespace motley
