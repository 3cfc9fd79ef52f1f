// How the next token is chosen from the logits.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "base/status.h"

namespace motley {

struct SamplingParams {
  double temperature = 0;         // 0: greedy
  int top_k = 0;                  // 0: off
  double top_p = 1;               // 1: off
  double min_p = 0;               // 0: off; relative to the most likely token
  double repetition_penalty = 1;  // 1: off; divides positive, multiplies negative logits
  double presence_penalty = 0;    // subtracted once from tokens already generated
  double frequency_penalty = 0;   // subtracted per occurrence in the generated text
  uint64_t seed = 0;
  std::map<int32_t, double> logit_bias;  // added to the logits

  // kInvalidArgument naming the first value out of range.
  Status validate(int64_t vocab_size) const;
};

}  // namespace motley
